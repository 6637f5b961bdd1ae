// What happens, in words, newest first.
import { el, fill, link } from './dom.js';
import { describe, kindWord } from './facts.js';
import { matcher } from './filters.js';
import { clock, count } from './words.js';

const shown = 200;

export function events(root, store, at) {
  let filters = at.filters, still = false, timer = null, drawn = 0;
  const list = el('ol', { class: 'told all', 'aria-label': 'Events, newest first' });
  const says = el('span', { class: 'dim', role: 'status' });
  const pause = el('button', { 'data-key': 'pause', 'aria-pressed': 'false', onclick: () => {
    still = !still;
    pause.textContent = still ? 'Go on' : 'Pause';
    pause.setAttribute('aria-pressed', String(still));
    if (!still) render();
  } }, 'Pause');
  fill(root, el('div', { class: 'tools row' }, pause, says), list);

  function render() {
    timer = null;
    drawn = performance.now();
    const match = matcher(filters.q);
    const out = [];
    for (let i = store.events.length - 1; i >= 0 && out.length < shown; i--) {
      const ev = store.events[i];
      if (filters.tenant && ev.tenant !== filters.tenant) continue;
      const words = describe(ev);
      if (match && !match(`${words} ${ev.kind} #${ev.task || ''} ${ev.tenant || ''}`)) continue;
      out.push(el('li', null, el('time', { datetime: ev.at }, clock(ev.at, true)), el('span', { class: 'kind' }, kindWord(ev.kind)),
        ev.task ? link('/tasks/' + ev.task, { 'data-key': 'ev' + ev.seq }, `#${ev.task} of ${ev.tenant}`) : null, el('span', null, words)));
    }
    fill(list, out.length ? out : el('li', { class: 'dim' }, store.events.length ? 'No event fits the filters.' : 'Nothing has happened since this page was opened.'));
    says.textContent = `${count(store.told, 'event')} since this page was opened`;
  }

  return {
    // Four times a second is as fast as anyone reads, whatever comes.
    update(topics) { if (topics.has('events') && !still) timer ??= setTimeout(render, Math.max(0, 250 - (performance.now() - drawn))); },
    filter(f) { filters = f; render(); },
    close() { clearTimeout(timer); },
  };
}
