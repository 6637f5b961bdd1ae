// The strip of numbers that stays in sight.
import { el, fill } from './dom.js';
import { totals } from './fleet.js';
import { num, percent } from './words.js';

let last = 0; // it counts all GPUs, so it is drawn at most four times a second
let late;

// strip draws the numbers: at once when asked to, else as soon as it may.
export function strip(box, store, atOnce) {
  const now = performance.now();
  if (!atOnce && store.loaded && now - last < 250 && box.firstChild) {
    clearTimeout(late);
    late = setTimeout(() => draw(box, store), 250);
    return;
  }
  draw(box, store);
}

function draw(box, store) {
  clearTimeout(late);
  last = store.loaded ? performance.now() : 0;
  const t = totals(store.fleet);
  const waiting = store.pools.reduce((n, p) => n + p.waiting, 0);
  const parked = store.pools.reduce((n, p) => n + p.parked, 0);
  const items = [
    ['GPUs', num(t.gpus)],
    ['held', `${num(t.heldGPUs)}`, t.gpus ? percent(t.heldGPUs / t.gpus) : ''],
    ['free', num(t.free)],
    ['idle', num(t.idle), '', t.idle > 0],
    ['real use', t.known > 0 ? percent(t.busyGPUs / t.known) : '–', t.known > 0 ? 'of what is held' : ''],
    ['waiting', num(waiting), '', waiting > 0],
    ['parked', num(parked)],
    ['unusable', num(t.unusable), '', t.unusable > 0],
  ];
  fill(box, el('dl', null, items.map(([name, value, more, mark]) =>
    el('div', { class: mark ? 'mark' : null }, el('dt', null, name), el('dd', null, value, more ? el('small', null, ' ' + more) : null)))));
}
