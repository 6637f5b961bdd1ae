// Keys. Single letters can be turned off, for those who speak to their computer or whose
// keyboard shortcuts are taken; none of them works while one types.
import { el } from './dom.js';
import { go, here, linkTo, views } from './place.js';
import { remember, remembered } from './session.js';

const rows = [
  ['/', 'search'], ['?', 'this help'], ['d', 'next theme: auto, dark, light'], ['t', 'map or table of GPUs'],
  ...views.map((v) => [`g ${v.key}`, 'go to ' + v.name]),
  ['arrows', 'move over the map, once it has the focus'], ['Enter', 'show the GPU under the cursor'], ['Esc', 'close, or leave a field'],
];

export function showHelp() {
  const before = document.activeElement;
  const d = el('dialog', { 'aria-labelledby': 'helptitle', onclose: () => { d.remove(); before?.focus?.(); } },
    el('h2', { id: 'helptitle' }, 'Keys'),
    el('dl', { class: 'keys' }, rows.map(([k, what]) => [el('dt', null, k.split(' ').map((x) => [el('kbd', null, x), ' '])), el('dd', null, what)])),
    el('label', { class: 'check' }, el('input', { type: 'checkbox', checked: enabled(), onchange: (e) => remember('keys', e.target.checked ? 'on' : 'off') }), ' single letters do this'),
    el('form', { method: 'dialog', class: 'row end' }, el('button', { class: 'main' }, 'Close')));
  document.body.append(d);
  d.showModal();
}

function enabled() { return remembered('keys', 'on') !== 'off'; }

// keys listens until the function that it returns is called.
export function keys() {
  let led = -Infinity; // when g was pressed
  const onKey = (e) => {
    const typing = e.target.closest?.('input, textarea, select, [contenteditable]');
    if (e.key === 'Escape' && typing) { e.target.blur(); return; }
    if (typing || e.ctrlKey || e.metaKey || e.altKey || document.querySelector('dialog[open]') || !enabled()) return;
    const leading = performance.now() - led < 1500;
    led = -Infinity;
    if (leading) {
      const v = views.find((x) => x.key === e.key);
      if (v) { e.preventDefault(); go(linkTo(v, here().filters)); }
      return;
    }
    const act = { g: () => { led = performance.now(); }, '/': () => document.getElementById('search')?.focus(), '?': showHelp,
      d: () => document.querySelector('.theme')?.click(), t: () => document.querySelector('.astable')?.click() }[e.key];
    if (act) { e.preventDefault(); act(); }
  };
  document.addEventListener('keydown', onKey);
  return () => document.removeEventListener('keydown', onKey);
}
