// What a task went through: a bar of its states over time, and its events in words.
import { el, fill } from './dom.js';
import { describe, kindWord } from './facts.js';
import { clock, span } from './words.js';

// segments makes the states over time out of what is told of them.
export function segments(t, events) {
  const out = [{ state: 'queued', from: Date.parse(t.submitted) }];
  for (const ev of events) {
    if (ev.kind === 'task.state' && ev.fact.state !== out.at(-1).state) out.push({ state: ev.fact.state, from: Date.parse(ev.at) });
    if (ev.kind === 'task.placed' && out.at(-1).state === 'queued') out.push({ state: 'starting', from: Date.parse(ev.at) });
  }
  const last = out.at(-1);
  if (last.state !== t.state) out.push({ state: t.state, from: Date.parse(t.ended || t.started || t.submitted) });
  const end = t.ended ? Date.parse(t.ended) : Date.now();
  return out.map((s, i) => ({ ...s, to: i + 1 < out.length ? out[i + 1].from : Math.max(end, s.from) }));
}

export function timeline(box, t, events) {
  const all = segments(t, events);
  const total = Math.max(1, all.at(-1).to - all[0].from);
  const lasting = all.filter((s) => s.to > s.from);
  const strip = el('div', { class: 'timeline', 'aria-hidden': 'true' }, lasting.map((s) => {
    const seg = el('span', { class: 'seg ' + s.state, title: `${s.state} for ${span((s.to - s.from) / 1000)}` }, s.state);
    seg.style.flexGrow = String(Math.max(0.02, (s.to - s.from) / total));
    return seg;
  }));
  const gap = events[0]?.kind === 'gap';
  fill(box, el('h2', null, 'Timeline'), strip,
    el('ol', { class: 'states' }, all.map((s) => el('li', null, el('strong', null, s.state), ` from ${clock(new Date(s.from), true)}`, s.to > s.from ? ` for ${span((s.to - s.from) / 1000)}` : ''))),
    el('details', { open: true }, el('summary', { 'data-key': 'told' }, `What happened (${events.length})`),
      gap ? el('p', { class: 'dim' }, 'Older events are no longer kept.') : null,
      el('ol', { class: 'told' }, events.filter((e) => e.kind !== 'gap').slice(-200).map((ev) => el('li', null, el('time', { datetime: ev.at }, clock(ev.at, true)), el('span', { class: 'kind' }, kindWord(ev.kind)), el('span', null, describe(ev)))))));
}
