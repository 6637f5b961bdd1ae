// One task: what it is, why it is where it is, what it did, what it wrote, and what can be
// asked of it.
import { el, fill } from './dom.js';
import { actions } from './actions.js';
import { call, history } from './net.js';
import { badge } from './tasks.js';
import { expected } from './queue.js';
import { logTail } from './log.js';
import { timeline } from './timeline.js';
import { planned } from './facts.js';
import { maySubmit } from './roles.js';
import { clock, mib, num, percent, span } from './words.js';

const terminal = ['succeeded', 'failed', 'cancelled', 'expired'];

export function task(root, store, at) {
  const id = at.task;
  const parts = Object.fromEntries(['head', 'why', 'act', 'facts', 'members', 'time', 'log'].map((n) => [n, el('section', { class: 'card ' + n })]));
  let events = [], seen = 0, busy = false, again = false, closed = false, log = null, past = null;
  fill(root, el('div', { class: 'task' }, parts.head, parts.why, parts.act,
    el('div', { class: 'column' }, parts.time, parts.facts), el('div', { class: 'column' }, parts.members, parts.log)));

  async function load() {
    if (busy) { again = true; return; }
    busy = true;
    again = false;
    try {
      past ??= history(id).then((evs) => { events = evs; seen = evs.at(-1)?.seq || 0; });
      const [x] = await Promise.all([call(`/v1/tasks/${id}/explain`), past]);
      collect();
      if (!closed) render(x);
    } catch (e) {
      if (!closed) fill(parts.head, el('p', { role: 'alert', class: 'fault' }, e.message));
    }
    await new Promise((done) => setTimeout(done, 700));
    busy = false;
    if (again && !closed) load();
  }

  // collect takes what the stream told since, about this task.
  function collect() {
    for (const ev of store.events) {
      if (ev.task !== id || ev.seq <= seen) continue;
      events.push(ev);
      seen = ev.seq;
    }
  }

  function render(x) {
    const t = x.task;
    fill(parts.head, el('div', { class: 'row' }, badge(t.state), el('strong', { class: 'name' }, t.name || (t.command ? t.command[0] : 'a lease')), el('span', { class: 'dim' }, `of ${t.tenant} in ${t.pool}`)));
    fill(parts.why, el('h2', null, terminal.includes(t.state) ? 'How it ended' : t.state === 'queued' ? 'Why it waits' : 'Where it is'), reasons(x));
    if (maySubmit(store.self)) actions(parts.act, t, load);
    else parts.act.hidden = true;
    fill(parts.members, el('h2', null, 'What it holds'), members(t));
    timeline(parts.time, t, events);
    fill(parts.facts, el('h2', null, 'As submitted'), facts(t));
    if (t.command) (log ??= logTail(parts.log, t)).see(t);
    else parts.log.hidden = true;
  }

  return { update(topics) { if (topics.has('tasks')) load(); }, filter() {}, close() { closed = true; log?.close(); } };
}

function reasons(x) {
  const t = x.task, list = [];
  if (t.state === 'queued') {
    list.push(t.held || x.code === 'waiting_for_tasks' ? 'not in line yet' : `${num(x.ahead)} before it in line; it has waited for ${span((Date.now() - Date.parse(t.submitted)) / 1000)}`);
    list.push('expected start: ' + expected(t));
    if (t.waits_until) list.push(`expires at ${clock(t.waits_until)} unless it has started by then`);
  }
  const f = t.forecast;
  if (f && f.basis !== 'none' && !terminal.includes(t.state)) list.push(`expected to run for ${f.p50}, nine times in ten for at most ${f.p90}`);
  if (t.plan) list.push(planned(t.plan));
  if (t.resized) list.push(`asks for ${t.resized} now${t.resized_by ? ', as ' + t.resized_by + ' says' : ''}`);
  if (x.run_left) list.push(`may run for ${t.max_runtime}, of which ${x.run_left} are left`);
  if (x.reservation) list.push(`kept for it: GPU ${x.reservation.gpus.join(', ') || 'none'}` + (x.reservation.at ? `, free about ${clock(x.reservation.at)}` : ''));
  if (x.array) list.push(`array: ${x.array.succeeded} done, ${x.array.failed} failed, ${x.array.running} running, ${x.array.waiting} waiting, of ${x.array.size}`);
  if (t.enforcement) list.push(`what keeps it to what it holds: ${t.enforcement}`);
  if (t.preempted) list.push(`was sent back to the queue ${t.preempted} time(s)`);
  if (t.exit) list.push(t.exit.lost ? `how it ended is not known: ${t.exit.lost}` : `exit code ${t.exit.code}${t.exit.signal ? ', ' + t.exit.signal : ''}${t.exit.oom ? ', out of memory' : ''}`);
  list.push(...(x.detail || []));
  return [el('p', { class: 'say' }, x.message || x.code), el('ul', null, list.map((s) => el('li', null, s))),
    x.sooner?.length ? [el('h3', null, 'What would let it start sooner'), el('ul', null, x.sooner.map((s) => el('li', null, s)))] : null,
    el('p', { class: 'dim' }, 'reason code ', el('code', null, x.code || 'none'))];
}

function members(t) {
  if (!t.members?.length) return el('p', { class: 'dim' }, 'Nothing.');
  return el('ul', { class: 'holders' }, t.members.map((m) => el('li', null, el('strong', null, t.members.length > 1 ? `member ${m.member} on ${m.host}` : m.host), ` · ${m.phase}`,
    m.slices.map((s) => el('div', { class: 'dim' }, s.text + use(s))))));
}

function use(s) {
  if (!s.use || s.use.compute < 0) return ' · use not known';
  return ` · ${percent(s.use.compute)} busy` + (s.use.memory_mib >= 0 ? ` · ${mib(s.use.memory_mib)} of ${mib(s.memory_mib || 0)} memory` : '');
}

function facts(t) {
  const rows = [['Asks for', t.request], ['Priority', t.priority], ['Class', t.class], ['Command', t.command ? el('code', null, t.command.join(' ')) : 'a lease of an outside client'],
    ['Image', t.image], ['Volumes', t.volumes?.map((v) => `${v.source} at ${v.target}${v.read_only ? ', only read' : ''}`).join(', ')], ['Network', t.network],
    ['Cores', t.cpus], ['Memory', t.memory_mib ? mib(t.memory_mib) : ''], ['Submitted', clock(t.submitted, true)], ['Last started', t.started ? clock(t.started, true) : ''],
    ['Ended', t.ended ? clock(t.ended, true) : ''], ['Longest run', t.max_runtime], ['Estimate', t.estimate], ['Saves its work every', t.checkpoint_every],
    ['Deadline', t.deadline ? clock(t.deadline) : ''], ['When idle', t.on_idle], ['Runs with', t.min_gpus || t.max_gpus ? `${num(t.min_gpus || 0)} to ${num(t.max_gpus || 0)} GPUs` : ''], ['After', t.after?.join(', ')], ['After, however they end', t.after_any?.join(', ')], ['Array', t.array_spec]];
  return el('dl', { class: 'facts' }, rows.filter(([, v]) => v).map(([k, v]) => [el('dt', null, k), el('dd', null, v)]));
}
