// Where each GPU is drawn. Pools stand one below the other; in a pool, hosts stand in rows
// of blocks of one size. So what is visible, and what is under the pointer, is found by
// dividing, whatever the number of GPUs: only pools are walked through.

export const sizes = {
  s: { name: 'small', w: 26, h: 24, gap: 3 },
  m: { name: 'medium', w: 44, h: 36, gap: 4 },
  l: { name: 'large', w: 104, h: 60, gap: 6 },
};

const headHeight = 34;   // of a pool's name
const hostHeight = 17;   // of a host's name
const blockGap = 14;

// sizeFor is the size that shows most while one still sees all: for n GPUs.
export function sizeFor(n) { return n <= 64 ? 'l' : n <= 1000 ? 'm' : 's'; }

// layout places the hosts that pass. keep(host) says which.
export function layout(fleet, width, sizeName, keep) {
  const size = sizes[sizeName];
  const byPool = new Map(fleet.pools.map((p) => [p, []]));
  for (const h of fleet.hosts) if (keep(h) && h.gpus.length) byPool.get(h.pool)?.push(h);
  const out = { size, width, pools: [], height: 0, hosts: 0 };
  let y = 0;
  for (const [name, hosts] of byPool) {
    if (hosts.length === 0) continue;
    const most = Math.max(...hosts.map((h) => h.gpus.length));
    const fit = Math.max(1, Math.floor((width + size.gap) / (size.w + size.gap)));
    const perRow = Math.min(most, fit, 8);
    const blockW = perRow * (size.w + size.gap) - size.gap;
    const blockH = hostHeight + Math.ceil(most / perRow) * (size.h + size.gap) + 6;
    const cols = Math.max(1, Math.floor((width + blockGap) / (blockW + blockGap)));
    const rows = Math.ceil(hosts.length / cols);
    out.pools.push({ name, hosts, y, top: y + headHeight, perRow, blockW, blockH, cols, rows });
    y += headHeight + rows * blockH + 10;
    out.hosts += hosts.length;
  }
  out.height = y;
  return out;
}

// visible yields what lies between two heights: {pool} for a heading, {pool, host, x, y}
// for a host.
export function* visible(l, from, to) {
  for (const p of l.pools) {
    if (p.top + p.rows * p.blockH < from || p.y > to) continue;
    yield { pool: p };
    const first = Math.max(0, Math.floor((from - p.top) / p.blockH));
    const last = Math.min(p.rows - 1, Math.floor((to - p.top) / p.blockH));
    for (let r = first; r <= last; r++) {
      for (let c = 0; c < p.cols; c++) {
        const host = p.hosts[r * p.cols + c];
        if (host) yield { pool: p, host, x: c * (p.blockW + blockGap), y: p.top + r * p.blockH };
      }
    }
  }
}

// tile is where the i-th GPU of a host stands, from the host's corner.
export function tile(l, p, i) {
  const { w, h, gap } = l.size;
  return { x: (i % p.perRow) * (w + gap), y: hostHeight + Math.floor(i / p.perRow) * (h + gap), w, h };
}

// hit is the GPU at a point, or null.
export function hit(l, x, y) {
  for (const p of l.pools) {
    if (y < p.top || y >= p.top + p.rows * p.blockH) continue;
    const c = Math.floor(x / (p.blockW + blockGap));
    const r = Math.floor((y - p.top) / p.blockH);
    const host = c < p.cols ? p.hosts[r * p.cols + c] : null;
    if (!host) return null;
    const { w, h, gap } = l.size;
    const dx = x - c * (p.blockW + blockGap), dy = y - p.top - r * p.blockH - hostHeight;
    const col = Math.floor(dx / (w + gap)), row = Math.floor(dy / (h + gap));
    if (dy < 0 || col >= p.perRow || dx - col * (w + gap) > w || dy - row * (h + gap) > h) return null;
    return host.gpus[row * p.perRow + col] || null;
  }
  return null;
}

// place is the rectangle of a GPU, or null when it is filtered out.
export function place(l, gpu, host) {
  for (const p of l.pools) {
    if (p.name !== host.pool) continue;
    const n = p.hosts.indexOf(host);
    if (n < 0) return null;
    const t = tile(l, p, host.gpus.indexOf(gpu));
    return { x: (n % p.cols) * (p.blockW + blockGap) + t.x, y: p.top + Math.floor(n / p.cols) * p.blockH + t.y, w: t.w, h: t.h };
  }
  return null;
}
