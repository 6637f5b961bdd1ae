// GPUs held here, beside what the same tasks would hold as whole GPUs of their own. The
// numbers are sampled by this page while it is open.
import { el, fill, table } from './dom.js';
import { chart } from './chart.js';
import { clock, num, percent, span } from './words.js';

export function savings(root, store) {
  const box = el('div');
  fill(root, box);
  let plot = null;

  function render() {
    if (store.self.role !== 'admin') {
      fill(box, el('p', { class: 'card' }, 'What the pool saves is shown to admins: a tenant does not see what others hold.'));
      return;
    }
    const s = store.samples;
    if (s.length === 0) { fill(box, el('p', { class: 'card' }, 'The first sample is taken when all GPUs are known.')); return; }
    const now = s.at(-1), sum = (k) => s.reduce((n, x) => n + x[k], 0) / s.length;
    const saved = (held, would) => (would > 0 ? percent(1 - held / would) : '–');
    const tiles = [['held now', num(now.held)], ['static would hold', num(now.would)], ['saved now', saved(now.held, now.would)], [`saved in ${span((now.at - s[0].at) / 1000)}`, saved(sum('held'), sum('would'))]];
    plot ??= chart('GPUs held, beside what static would hold', [{ key: 'would', name: 'static would hold', style: 'would' }, { key: 'held', name: 'held', style: 'held' }, { key: 'busy', name: 'really used', style: 'busy' }]);
    fill(box, el('div', { class: 'tiles' }, tiles.map(([k, v]) => el('div', { class: 'card' }, el('div', { class: 'dim' }, k), el('div', { class: 'big' }, v)))),
      el('div', { class: 'card' }, plot.element), el('p', { class: 'dim' }, 'Static gives every slice a whole GPU of its own for as long as its task lives, also while that is parked. It might queue instead; then it would hold fewer, and its users would wait.'),
      el('details', null, el('summary', { 'data-key': 'savingstable' }, 'As a table'), table('Samples', columns, s.filter((_, i) => i % Math.ceil(s.length / 60) === 0).reverse(), '')));
    requestAnimationFrame(() => plot.show(s)); // once it has a width
  }

  return { update(topics) { if (topics.has('samples')) render(); }, filter() {} };
}

const columns = [
  { name: 'At', cell: (s) => clock(new Date(s.at), true) }, { name: 'Held', class: 'n', cell: (s) => num(s.held) },
  { name: 'Static would hold', class: 'n', cell: (s) => num(s.would) }, { name: 'Really used', class: 'n', cell: (s) => num(s.busy || 0) },
];
