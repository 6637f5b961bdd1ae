// What there is to say of one GPU, beside the map or below it.
import { el, fill, link } from './dom.js';
import { call } from './net.js';
import { clock, mib, percent } from './words.js';

export function gpuPanel(store, onClose) {
  const element = el('aside', { class: 'panel', 'aria-label': 'GPU', tabindex: '-1', hidden: true, onkeydown: (e) => {
    if (e.key === 'Escape') { onClose(); document.querySelector('.sheet')?.focus(); }
  } });
  let shown = null, version = -1, timer = null;

  async function load() {
    timer = null;
    if (shown == null) return;
    const n = shown, gpu = store.fleet.gpus[n];
    if (!gpu) return;
    version = store.fleet.version;
    try {
      const page = await call(`/v1/gpus?limit=1000&host=${encodeURIComponent(store.fleet.hosts[gpu.host].name)}`);
      const g = page.items.find((x) => x.gpu === n);
      if (g && shown === n) render(element, g, onClose);
    } catch (e) {
      if (shown === n) fill(element, el('p', { role: 'alert' }, e.message));
    }
  }

  return {
    element,
    show(g) {
      shown = g ? g.n : null;
      element.hidden = !g;
      clearTimeout(timer);
      timer = null;
      if (g) load();
    },
    update() { if (shown != null && store.fleet.version !== version) timer ??= setTimeout(load, 1500); },
    focus() { element.focus(); },
    close() { shown = null; clearTimeout(timer); },
  };
}

function render(box, g, onClose) {
  const facts = [['Model', g.model], ['Host', g.host], ['Pool', link('/?pool=' + encodeURIComponent(g.pool), null, g.pool)], ['Memory', mib(g.memory_mib)],
    ['Health', g.why ? `${g.health}: ${g.why}` : g.health], ['Mode', g.mode], ['Held', percent(g.milli / 1000)], ['UUID', el('code', null, g.id)]];
  if (g.health_by) facts.push(['Says', g.health_by + (g.health_since ? `, since ${clock(g.health_since)}` : '')]);
  if (g.mend) facts.push(['To mend it', el('code', null, g.mend)]);
  if (g.last_fault) facts.push(['Faults', `${g.faults}, the last ${g.last_fault.code}${g.last_fault.what ? ` (${g.last_fault.what})` : ''} at ${clock(g.last_fault.at)}`]);
  fill(box,
    el('div', { class: 'row' }, el('h2', null, 'GPU ' + g.gpu), el('button', { class: 'quiet', onclick: onClose, 'aria-label': 'Close', 'data-key': 'closepanel' }, '✕')),
    el('dl', { class: 'facts' }, facts.map(([k, v]) => [el('dt', null, k), el('dd', null, v)])),
    el('h3', null, 'Holders'),
    g.holders.length === 0 ? el('p', { class: 'dim' }, 'Nobody: it is free.') : el('ul', { class: 'holders' }, g.holders.map(holder)));
}

function holder(h) {
  const u = h.slice.use;
  const use = !u || u.compute < 0 ? 'use not known' : `${percent(u.compute)} busy` + (u.memory_mib >= 0 ? `, ${mib(u.memory_mib)} of ${mib(h.slice.memory_mib)}` : '');
  if (!h.task) return el('li', null, el('strong', null, 'another tenant'), el('div', { class: 'dim' }, h.slice.text));
  return el('li', null, link('/tasks/' + h.task, null, `#${h.task} ${h.name || ''}`), ` of ${h.tenant}`, el('div', { class: 'dim' }, `${h.slice.text} · ${h.phase} · ${use}`));
}
