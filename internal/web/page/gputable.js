// The same as the map, as a table: for screen readers, for copying, and for those who
// rather read. A page has 100 GPUs.
import { el, fill, link, table } from './dom.js';
import { held, profile, stateOf } from './fleet.js';
import { num, useWord } from './words.js';

const perPage = 100;

export function gpuTable(store, onSelect) {
  const element = el('div', { class: 'gputable' });
  let gpus = [], page = 0;

  function render() {
    const fleet = store.fleet;
    const pages = Math.max(1, Math.ceil(gpus.length / perPage));
    page = Math.min(page, pages - 1);
    const rows = gpus.slice(page * perPage, (page + 1) * perPage);
    const columns = [
      { name: 'GPU', cell: (g) => el('button', { class: 'link', 'data-key': 'gpu' + g.n, onclick: () => onSelect(fleet.gpus[g.n]) }, 'GPU ' + g.n) },
      { name: 'Host', cell: (g) => fleet.hosts[g.host].name },
      { name: 'Pool', cell: (g) => fleet.hosts[g.host].pool },
      { name: 'Model', cell: (g) => g.model.name },
      { name: 'State', cell: (g) => (g.health !== 'ok' ? g.health : fleet.hosts[g.host].up ? stateOf(fleet, g) : 'host away') },
      { name: 'Held', class: 'n', cell: (g) => Math.round(held(g) / 10) + ' %' },
      { name: 'Holders and their real use', class: 'wide', cell: (g) => (g.slices.length ? g.slices.map((s, i) => [i ? ', ' : '', holder(g, s)]) : '–') },
    ];
    const turn = (by, text) => el('button', { 'data-key': text, disabled: page + by < 0 || page + by >= pages, onclick: () => { page += by; render(); element.scrollIntoView(); } }, text);
    fill(element, table('GPUs', columns, rows, 'No GPU fits the filters.'),
      el('div', { class: 'row pager' }, turn(-1, 'Previous'), el('span', { role: 'status' }, `page ${num(page + 1)} of ${num(pages)}`), turn(1, 'Next')));
  }

  return { element, show(list) { gpus = list; render(); } };
}

function holder(g, s) {
  const use = s.use < 0 ? useWord(s.use) : s.use + ' %';
  if (!s.task) return `another tenant ${profile(g, s)}`;
  return [link('/tasks/' + s.task, { 'data-key': `h${g.n}.${s.owner}.${s.start}` }, `${s.tenant} #${s.task}`), ` ${profile(g, s)} (${use})`];
}
