// The door: a token, and nothing else. It is checked before it is kept.
import { el, fill } from './dom.js';
import { call } from './net.js';
import { keep } from './session.js';

export function signIn(app, done, why) {
  const fault = el('p', { role: 'alert', class: 'fault', id: 'fault' }, why || '');
  const input = el('input', { id: 'token', type: 'password', autocomplete: 'off', spellcheck: 'false', required: true, 'aria-describedby': 'where fault' });
  const form = el('form', { class: 'gate', onsubmit: async (e) => {
    e.preventDefault();
    const token = input.value.trim();
    fault.textContent = '';
    if (!/^[\x21-\x7e]+$/.test(token)) { fault.textContent = 'A token is one word, such as gpt_name_….'; return input.focus(); }
    try {
      await call('/v1/whoami', { token });
      keep(token);
      done();
    } catch (x) {
      fault.textContent = x.message;
      input.select();
    }
  } },
  el('h1', null, el('img', { src: '/page/icon.svg', alt: '', width: 28, height: 28 }), ' gpupool'),
  el('label', { for: 'token' }, 'Token'), input, fault,
  el('button', { class: 'main' }, 'Sign in'),
  el('p', { class: 'dim', id: 'where' }, 'The admin token is in ', el('code', null, 'admin.token'), ' in the data folder of the server. A tenant gets one from ',
    el('code', null, 'gpupool tenants create NAME'), '. It is kept in this tab until you close it or sign out.'));
  fill(app, el('main', { id: 'main' }, form));
  document.title = 'Sign in · gpupool';
  input.focus();
}
