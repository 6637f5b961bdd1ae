// Every GPU and what stands on it. It comes in one answer (/v1/map), and facts from the
// event stream change it. A fact may be told twice: each says what is, so that is no harm.
// Beside GPUs it knows where owners hold something, so that a fact costs what it changes.

const modes = ['whole', 'mig', 'shared'];

export class Fleet {
  constructor() {
    this.gpus = [];     // {n, host, model, health, slices}
    this.hosts = [];    // {name, pool, up, gpus}
    this.models = [];
    this.pools = [];    // names
    this.owners = new Map(); // "task.epoch.member" -> numbers of GPUs
    this.version = 0;   // counts changes of anything
    this.shape = 0;     // counts changes of which hosts and GPUs there are
    this.seq = 0;
  }

  // load takes a map as the API sends it.
  load(m) {
    const same = m.hosts.length === this.hosts.length && m.gpus.length === this.gpus.length &&
      m.hosts.every((h, i) => h.name === this.hosts[i].name && m.pools[h.pool] === this.hosts[i].pool);
    this.seq = m.seq;
    this.models = m.models;
    this.pools = m.pools;
    this.hosts = m.hosts.map((h) => ({ name: h.name, pool: m.pools[h.pool], up: h.up, gpus: [] }));
    this.owners.clear();
    this.gpus = m.gpus.map((g, n) => {
      const gpu = { n, host: g.host, model: m.models[g.model], health: g.health || 'ok', slices: [] };
      this.hosts[g.host].gpus.push(gpu);
      for (const [task, epoch, member, tenant, mode, start, units, milli, use] of g.slices) {
        this.put(gpu, { task, owner: `${task}.${epoch}.${member}`, tenant: tenant < 0 ? '' : m.tenants[tenant], mode: modes[mode], start, units, milli, use });
      }
      return gpu;
    });
    this.version++;
    if (!same) this.shape++;
  }

  put(gpu, slice) {
    gpu.slices.push(slice);
    if (!slice.task) return;
    const at = this.owners.get(slice.owner);
    if (at) at.push(gpu.n);
    else this.owners.set(slice.owner, [gpu.n]);
  }

  // remove takes away all that an owner holds, and returns how busy that was.
  remove(owner) {
    let use = -1;
    for (const n of this.owners.get(owner) || []) {
      const gpu = this.gpus[n];
      if (!gpu) continue;
      gpu.slices = gpu.slices.filter((s) => {
        if (s.owner === owner) use = s.use;
        return s.owner !== owner;
      });
    }
    this.owners.delete(owner);
    return use;
  }

  // apply takes a fact. It returns 'load' when the whole map must be asked for again,
  // true when something changed, false when nothing here is about it.
  apply(ev) {
    const f = ev.fact;
    switch (ev.kind) {
      case 'task.placed':
        f.parts.forEach((p, i) => this.hold({ task: f.task, epoch: f.epoch, member: i }, p.slices || [], ev.tenant, -1));
        break;
      case 'part.resizing': {
        const use = this.remove(key(f.owner));
        this.hold(f.owner, f.slices || [], ev.tenant, use);
        break;
      }
      case 'part.freed':
        this.remove(key(f.owner));
        break;
      case 'gpu.changed':
        if (!this.gpus[f.gpu]) return 'load';
        this.gpus[f.gpu].health = f.health;
        break;
      case 'host.changed':
        if (!this.hosts[f.host]) return 'load';
        this.hosts[f.host].up = f.up;
        break;
      case 'host.joined': case 'host.moved': case 'model.learned': case 'pool.set': case 'gap':
        return 'load';
      default:
        return false;
    }
    this.version++;
    return true;
  }

  hold(owner, slices, tenant, use) {
    this.remove(key(owner));
    for (const s of slices) {
      const gpu = this.gpus[s.gpu];
      if (!gpu) continue;
      const profile = s.mode === 'mig' ? gpu.model.profiles.find((p) => p.name === s.profile) : null;
      this.put(gpu, { task: owner.task, owner: key(owner), tenant, mode: s.mode, start: s.start || 0, units: profile ? profile.units : 0, milli: s.milli, use });
    }
  }

  usable(gpu) { return gpu.health === 'ok' && this.hosts[gpu.host].up; }
}

function key(o) { return `${o.task}.${o.epoch}.${o.member || 0}`; }

// profile names what a slice is, as the command line does.
export function profile(gpu, s) {
  if (s.mode === 'whole') return 'the whole GPU';
  if (s.mode === 'shared') return `a share of ${Math.round(s.milli / 10)} %`;
  const p = gpu.model.profiles.find((x) => x.units === s.units && Math.abs(migMilli(gpu, x) - s.milli) < 2) || gpu.model.profiles.find((x) => x.units === s.units);
  return p ? p.name : `${s.units} units`;
}

function migMilli(gpu, p) { return Math.round(1000 * parseInt(p.name, 10) / Math.max(1, gpu.model.units - 1)); }

export function held(gpu) { return gpu.slices.reduce((sum, s) => sum + s.milli, 0); }

// busy is the use of a whole GPU in percent, from that of its slices; -1 = not known.
export function busy(gpu) {
  let sum = 0, known = false;
  for (const s of gpu.slices) {
    if (s.use < 0) continue;
    known = true;
    sum += s.use * s.milli / 1000;
  }
  return known ? sum : -1;
}

// stateOf is one word for a GPU: free, held, idle (held, and nothing on it is used) or unusable.
export function stateOf(fleet, gpu) {
  if (!fleet.usable(gpu)) return 'unusable';
  if (gpu.slices.length === 0) return 'free';
  return gpu.slices.every((s) => s.use >= 0 && s.use < 5) ? 'idle' : 'held';
}

// totals counts over GPUs, for the strip at the top and for savings. What static would
// hold: a whole GPU for every slice, as silos without slices give it out.
export function totals(fleet, pool) {
  const t = { gpus: 0, free: 0, held: 0, idle: 0, unusable: 0, heldGPUs: 0, staticGPUs: 0, busyGPUs: 0, known: 0 };
  for (const g of fleet.gpus) {
    if (pool && fleet.hosts[g.host].pool !== pool) continue;
    t.gpus++;
    t[stateOf(fleet, g)]++;
    t.heldGPUs += held(g) / 1000;
    t.staticGPUs += g.slices.length;
    const b = busy(g);
    if (b >= 0) { t.known += held(g) / 1000; t.busyGPUs += b / 100; }
  }
  return t;
}
