// The end of what a member wrote, asked for again while it runs. It is not followed: a
// stream would take one of the few connections that a browser has for a server.
import { el, fill } from './dom.js';
import { text } from './net.js';

const lines = 200;

export function logTail(box, first) {
  const members = first.members?.length || 1;
  const out = el('pre', { tabindex: '0', role: 'region', 'aria-label': 'Output', 'data-key': 'log' }, '…');
  const choice = el('select', { 'aria-label': 'Member', onchange: () => load() }, Array.from({ length: members }, (_, i) => el('option', { value: String(i) }, 'member ' + i)));
  let timer = null, closed = false, state = '';
  fill(box, el('div', { class: 'row' }, el('h2', null, `Output, the last ${lines} lines`), members > 1 ? choice : null), out);

  async function load() {
    clearTimeout(timer);
    if (state === 'queued') { out.textContent = 'Nothing yet: it has not started.'; return; }
    const atEnd = out.scrollTop + out.clientHeight >= out.scrollHeight - 8;
    try {
      const t = await text(`/v1/tasks/${first.id}/logs?tail=${lines}&member=${choice.value || 0}`);
      if (out.textContent !== t) out.textContent = t || 'Nothing yet.';
    } catch (e) { out.textContent = e.message; }
    if (atEnd) out.scrollTop = out.scrollHeight;
    if (!closed && ['running', 'starting', 'yielding'].includes(state)) timer = setTimeout(load, document.hidden ? 10000 : 2000);
  }

  return { see(t) { if (t.state !== state) { state = t.state; load(); } }, close() { closed = true; clearTimeout(timer); } };
}
