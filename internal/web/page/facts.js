// Events in words: the same words as `gpupool events`, and some that it does not have yet.
import { clock, mib, num } from './words.js';

const time = (ns) => clock(new Date(ns / 1e6));
const member = (o) => (o.member ? `member ${o.member} ` : '');

function gpus(parts) {
  const ns = [...new Set((parts || []).flatMap((p) => (p.slices || []).map((s) => s.gpu)))];
  if (ns.length === 0) return 'CPU and memory';
  if (ns.length > 8) return `${ns.length} GPUs`;
  return (ns.length === 1 ? 'GPU ' : 'GPUs ') + ns.join(', ');
}

function slices(list) {
  return (list || []).map((s) => (s.mode === 'mig' ? `${s.profile} at ${s.start || 0} of GPU ${s.gpu}`
    : s.mode === 'shared' ? `${Math.round(s.milli / 10)} % of GPU ${s.gpu}` : `GPU ${s.gpu}`)).join(', ');
}

function use(u) {
  const since = u.since ? ` since ${time(u.since)}` : '';
  switch (u.kind) {
    case 'idle': return `its GPUs idle${since}` + (u.memory_mib > 0 ? `, with ${mib(u.memory_mib)} loaded` : '');
    case 'light': return `uses little of its GPUs${since}`;
    case 'hot': return `uses all of its GPUs${since}`;
    case 'steady': return 'uses its GPUs';
  }
  return 'how it uses its GPUs is not known';
}

function exit(e) {
  if (e.lost) return `ended; how is not known: ${e.lost}`;
  if (e.oom) return 'was killed for its memory limit';
  return e.signal ? `ended by ${e.signal}` : `ended with code ${e.code}`;
}

function reserved(f) {
  if (!f.parts?.length) return 'nothing is kept for it any more';
  let t = gpus(f.parts) + ' kept for it';
  if (f.at > 0 && f.at < 9e18) t += `, free about ${time(f.at)}`;
  if (f.victims?.length) t += `; yielding: task ${f.victims.join(', ')}`;
  return t;
}

// planned says what was announced for a task; at is what Date takes.
export function planned(p) {
  const to = p.to && typeof p.to === 'string' ? ` with ${p.to}` : '';
  const what = { restart: `will be restarted${to}`, move: 'will be restarted at another place' }[p.move] || `will have done with it: ${p.move}`;
  return `${what} at ${clock(new Date(p.at), true)}` + (p.for ? `, as task ${p.for} waits` : '') + (p.reason?.message ? `: ${p.reason.message}` : '');
}

const words = {
  'task.submitted': (f) => `submitted: ${f.spec?.name || 'a task'} for pool ${f.spec?.pool || '?'}`,
  'task.placed': (f) => `gets ${f.parts?.length > 3 ? gpus(f.parts) : slices((f.parts || []).flatMap((p) => p.slices || [])) || 'CPU and memory'}`,
  'task.state': (f) => `is ${f.state}` + (f.reason?.message ? `: ${f.reason.message}` : ''),
  'task.held': (f) => (f.on ? 'held by ' : 'released by ') + f.by,
  'task.checkpoint': () => 'has saved its work',
  'task.reserved': reserved,
  'task.use': (f) => use(f.use || {}),
  'task.suspending': (f) => `is being suspended: ${f.reason?.message || ''}`,
  'task.suspended': () => 'is suspended; its GPUs are being freed',
  'task.woken': (f) => `woken by ${f.by}`,
  'task.resuming': () => 'goes on where it is',
  'task.resumed': () => 'runs again',
  'task.movefailed': (f) => `${f.move} failed: ${f.why}`,
  'task.sized': (f) => (f.request ? 'asks for another size' : 'asks for what it was submitted with') + (f.by ? `, as ${f.by} says` : '; its pool sees to its size'),
  'task.planned': (f) => planned({ ...f.plan, at: f.plan.at / 1e6 }),
  'task.dropped': (f) => `what was announced is not done: ${f.why}`,
  'task.shadow': (f) => `dynamic would ${f.move} it: ${f.reason?.message || ''}`,
  'task.forgotten': (f) => `${f.tasks?.length || 0} ended tasks are no longer kept`,
  'part.carved': (f) => `${member(f.owner)}has its slices`,
  'part.freed': (f) => `${member(f.owner)}has left its slices`,
  'part.freeretry': (f) => `its slices could not be freed (try ${f.tries}): ${f.why}`,
  'part.resizing': (f) => `${member(f.owner)}is being resized to ${slices(f.slices)}: ${f.reason?.message || ''}`,
  'part.resized': (f) => `${member(f.owner)}has its new size`,
  'member.started': (f) => `${member(f.owner)}runs`,
  'member.exited': (f) => member(f.owner) + exit(f.exit || {}),
  'lease.closing': (f) => `gives back what it holds, and is ${f.then} then: ${f.reason?.message || ''}`,
  'lease.recalled': (f) => f.reason?.message || 'its lease cannot be renewed',
  'lease.renewed': (f) => `its lease holds until ${time(f.expires)}`,
  'pool.asked': (f) => `pool ${f.pool} asked for more: ${f.waiting} tasks wait for ${num(f.gpus)} GPUs`,
  'pool.mode': (f) => `pool ${f.pool}${f.tenant ? ' for tenant ' + f.tenant : ''} is ${f.mode || 'as its settings say'}`
    + (f.by === 'guard' ? ': it fell back by itself' : `, set by ${f.by}`) + (f.reason ? `: ${f.reason}` : ''),
  'rollout.began': (f) => `rollout of ${f.rollout.mode} in ${f.rollout.steps.length} steps begun by ${f.rollout.by}: the baseline is measured`,
  'rollout.step': (f) => `step ${f.step + 1} of the rollout is on trial until ${time(f.until)}`,
  'rollout.ended': (f) => `the rollout has ended, ${f.how.replaceAll('_', ' ')}: ${f.why}`,
  'pool.set': (f) => `settings of pool ${f.pool?.name || ''}`,
  'pair.parted': (f) => `${f.pair?.join(' and ')} do not share a GPU until ${time(f.until)}: ${f.why}`,
  'tenant.set': (f) => `tenant ${f.tenant?.name || ''} is set`,
  'tenant.removed': (f) => `tenant ${f.name} is removed`,
  'token.set': (f) => `token ${f.token?.id || ''} of ${f.token?.role || ''} ${f.token?.tenant || ''} is set`,
  'token.removed': (f) => `token ${f.id} is revoked`,
  'host.joined': (f) => `host ${f.host?.name || ''} joined pool ${f.pool}`,
  'host.changed': (f) => (f.up ? 'a host is up' : 'a host is away') + (f.reason?.message ? `: ${f.reason.message}` : ''),
  'host.moved': (f) => `a host moved to pool ${f.pool}`,
  'model.learned': (f) => `a GPU model is known now: ${f.model?.key || ''}`,
  'gpu.changed': (f) => `GPU ${f.gpu} is ${f.health}` + (f.why ? `: ${f.why}` : '') + (f.operator ? ` (${f.operator.do}, by ${f.operator.by})` : '')
    + (f.driver ? ` (${f.driver.do}, by driver ${f.driver.by})` + (f.driver.mend ? `; to mend it: ${f.driver.mend}` : '') : ''),
  'gpu.faulted': (f) => `GPU ${f.gpu} reported ${f.code}` + (f.what ? `: ${f.what}` : '') + (f.reason ? `; the task that had it had ended: ${f.reason.message}` : ''),
  'host.shares': (f) => `GPUs of host ${f.host} are shared by ${f.sharing === 'mps' ? 'MPS' : 'time slices'} from now on`,
  gap: (f) => f.message,
};

// describe puts an event into words; of a newer server it shows the fact as it is.
export function describe(ev) {
  try {
    const say = words[ev.kind];
    if (say) return say(ev.fact);
  } catch { /* another shape than expected: as it is */ }
  return JSON.stringify(ev.fact);
}

// kindWord is a short name for the kind of an event, beside its words.
export function kindWord(kind) { return kind.replace('.', ' '); }
