// What can be asked of a task. The server decides what it allows; the page offers what
// makes sense in a state, and asks back before work is lost.
import { el, fill } from './dom.js';
import { call } from './net.js';

const offers = [
  { name: 'hold', text: 'Hold', when: (t) => t.state === 'queued' && !t.held },
  { name: 'release', text: 'Release', when: (t) => t.state === 'queued' && t.held },
  { name: 'checkpoint', text: 'It has saved its work', when: (t) => t.state === 'running' && t.command },
  { name: 'park', text: 'Park', when: (t) => t.state === 'running' && t.command, ask: 'It is suspended and its GPUs are lent, until it is woken.' },
  { name: 'wake', text: 'Wake', when: (t) => t.state === 'parked' },
  { name: 'resize', text: 'Resize', when: (t) => t.state === 'running' && t.command, size: true },
  { name: 'preempt', text: 'Send back to the queue', when: (t) => t.state === 'running', ask: 'It is ended, and starts again later: what it has not saved is lost.' },
  { name: 'cancel', text: 'Cancel', danger: true, when: (t) => !['succeeded', 'failed', 'cancelled', 'expired'].includes(t.state), ask: 'It gets SIGTERM, then its grace, then SIGKILL.' },
];

export function actions(box, t, done) {
  const open = offers.filter((o) => o.when(t));
  box.hidden = open.length === 0;
  const state = t.state + Boolean(t.held);
  if (box.dataset.for === state) return; // what it says stays in sight
  box.dataset.for = state;
  const says = el('p', { role: 'status', class: 'says' });
  fill(box, el('h2', { class: 'unseen' }, 'Actions'), el('div', { class: 'row' }, open.map((o) => el('button', { class: o.danger ? 'danger' : null, 'data-key': 'do-' + o.name, 'data-do': o.name, onclick: async () => {
    const gpus = o.size ? await size(t) : '';
    if (o.size && !gpus) return;
    if (o.ask && !await sure(`${o.text} task ${t.id}?`, o.ask, o.text, o.danger)) return;
    says.textContent = 'asking…';
    try {
      const after = await call(o.name === 'cancel' ? `/v1/tasks/${t.id}` : `/v1/tasks/${t.id}/${o.name}`, { method: o.name === 'cancel' ? 'DELETE' : 'POST', body: o.size ? { gpus } : undefined });
      says.className = 'says';
      says.textContent = `Done: it is ${after.state}.`;
      done();
    } catch (e) {
      says.className = 'says fault';
      says.textContent = e.message;
    }
  } }, o.text))), says);
}

// size asks for another size; '' when nothing is to change.
function size(t) {
  const input = el('input', { name: 'size', required: true, autocomplete: 'off', placeholder: '4, 0.5 or auto' });
  return dialog(`Resize task ${t.id}`, [el('label', { class: 'field' }, el('span', null, 'GPUs of each member'), input,
    el('small', { class: 'dim' }, 'auto leaves its size to the pool')), el('p', { class: 'dim' }, 'In place where that can be, else by the restart that it agreed to.')], 'Resize', 'main', () => input.value.trim());
}

// sure asks back.
export function sure(title, text, yes, danger) { return dialog(title, [el('p', null, text)], yes, danger ? 'danger' : 'main', () => true); }

// dialog keeps the focus while it is open, and gives it back. It answers what value says,
// or false.
function dialog(title, content, yes, cls, value) {
  return new Promise((answer) => {
    const before = document.activeElement;
    const d = el('dialog', { 'aria-labelledby': 'dialogtitle', onclose: () => { const out = d.returnValue === 'yes' && value(); d.remove(); before?.focus?.(); answer(out); } },
      el('form', { method: 'dialog' }, el('h2', { id: 'dialogtitle' }, title), content,
        el('div', { class: 'row end' }, el('button', { value: 'no', formnovalidate: true, type: 'submit' }, 'Leave it'), el('button', { value: 'yes', class: cls }, yes))));
    document.body.append(d);
    d.showModal();
  });
}
