// Handing in a task. A submission carries a key, so that pressing twice, or a network that
// fails in between, makes one task.
import { el, fill } from './dom.js';
import { call, idempotencyKey } from './net.js';
import { go } from './place.js';
import { maySubmit } from './roles.js';

export function submit(root, store) {
  let key = idempotencyKey(), made = false;
  const fault = el('p', { role: 'alert', class: 'fault', tabindex: '-1', id: 'submitfault' });

  function build() {
    made = true;
    if (!maySubmit(store.self)) return fill(root, el('p', { class: 'card' }, 'You may only read: to submit, sign in with a token of a tenant.'));
    const form = el('form', { class: 'card submit', onsubmit: (e) => { e.preventDefault(); send(form); }, oninput: () => { key = idempotencyKey(); } },
      field('Name', el('input', { name: 'name', maxlength: 256, autocomplete: 'off' }), 'for people'),
      store.self.tenant ? null : field('Tenant', choice('tenant', store.tenants.map((t) => t.name)), 'who pays'),
      field('Pool', choice('pool', store.pools.map((p) => p.name))),
      field('GPUs', el('input', { name: 'gpus', value: '1', required: true, autocomplete: 'off', spellcheck: 'false' }), '2, 0.3, 1/7, 3g.40gb, 20GiB or 2:H100-80GB'),
      field('Members', el('input', { name: 'members', type: 'number', min: 1, max: 16384, value: '1' }), 'of a gang: all or nothing'),
      field('Priority', choice('priority', ['normal', 'high', 'low'])),
      field('Class', choice('class', ['training', 'inference', 'interactive'])),
      field('When its GPUs idle', choice('on_idle', ['', 'keep', 'park', 'stop'], "the pool's rule")),
      field('Cores', el('input', { name: 'cpus', type: 'number', min: 0, step: 'any' }), 'of each member'),
      field('Memory', el('input', { name: 'memory', placeholder: '16GiB', autocomplete: 'off' }), 'of each member'),
      field('Estimate', el('input', { name: 'estimate', placeholder: '2h', autocomplete: 'off' }), 'your guess at how long it runs'),
      field('Longest run', el('input', { name: 'max_runtime', placeholder: '4h', autocomplete: 'off' }), 'then it is ended'),
      field('Image', el('input', { name: 'image', autocomplete: 'off', spellcheck: 'false' }), 'of a container; else as the server decides'),
      el('label', { class: 'field all' }, el('span', null, 'Command'), el('textarea', { name: 'command', rows: 3, required: true, spellcheck: 'false', 'aria-describedby': 'cmdhint' }), el('small', { id: 'cmdhint', class: 'dim' }, 'run by sh -c')),
      el('label', { class: 'check all' }, el('input', { type: 'checkbox', name: 'hold' }), ' hold it until it is released'),
      fault, el('div', { class: 'row all' }, el('button', { class: 'main' }, 'Submit')));
    fill(root, form);
  }

  async function send(form) {
    const f = new FormData(form), body = {};
    for (const k of ['name', 'tenant', 'pool', 'gpus', 'priority', 'class', 'on_idle', 'memory', 'estimate', 'max_runtime', 'image']) if (f.get(k)) body[k] = f.get(k).trim();
    if (Number(f.get('members')) > 1) body.members = Number(f.get('members'));
    if (f.get('cpus')) body.cpus = Number(f.get('cpus'));
    if (f.get('hold')) body.hold = true;
    body.command = ['sh', '-c', f.get('command')];
    fault.textContent = '';
    try {
      const t = await call('/v1/tasks', { method: 'POST', body, headers: { 'Idempotency-Key': key } });
      go('/tasks/' + t.id);
    } catch (e) {
      fault.textContent = e.message + (e.retryAfter ? ` Try again in ${e.retryAfter} s.` : '');
      fault.focus();
    }
  }

  // The lists of tenants and pools may come after the view: then once more, unless one types.
  return { update(topics) { if (!made || topics.has('pools') && !root.contains(document.activeElement) && !touched(root)) build(); }, filter() {} };
}

function touched(root) { return [...root.querySelectorAll('input, textarea')].some((i) => i.type !== 'checkbox' && i.value !== i.defaultValue && i.name !== 'gpus' && i.name !== 'members'); }

function field(name, input, hint) {
  return el('label', { class: 'field' }, el('span', null, name), input, hint ? el('small', { class: 'dim' }, hint) : null);
}

function choice(name, list, none) { return el('select', { name }, list.map((x) => el('option', { value: x }, x || none))); }
