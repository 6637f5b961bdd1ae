package redis

import "github.com/redis/go-redis/v9"

// Each script is one step that Redis takes alone, so what it checks still holds when
// it writes. They share these keys, all in one slot:
//
//	meta   hash: version, last and chain (of the newest record), acked (up to which replies
//	       have left), snap, snap_chain, snap_key, snap_parts, snap_sum, token (the newest
//	       that was given), holder (TOKEN:SERVER), site
//	facts  stream: a record has the id SEQ-0 and the fields d (bytes), c (chain), t (token)
//	lease  string with an expiry: SERVER TOKEN URL
//	snap:* hashes with the parts of a snapshot, by number; meta says which counts
//
// They answer a list whose first word says what happened.

// acquire takes the lease if nobody has it. KEYS meta, lease. ARGV server, ttl in ms,
// url, site, version. Answers: ok TOKEN LAST CHAIN; held PTTL LEASE; site SITE;
// version VERSION.
var acquire = redis.NewScript(`
local m = redis.call('HMGET', KEYS[1], 'version', 'site')
if m[1] and m[1] ~= ARGV[5] then return {'version', m[1]} end
local lease = redis.call('GET', KEYS[2])
if lease and string.sub(lease, 1, #ARGV[1]) ~= ARGV[1] then return {'held', tostring(redis.call('PTTL', KEYS[2])), lease} end
if m[2] and m[2] ~= '' and ARGV[4] ~= '' and m[2] ~= ARGV[4] then return {'site', m[2]} end
if not m[1] then redis.call('HSET', KEYS[1], 'version', ARGV[5], 'last', '0', 'chain', '', 'acked', '0') end
if ARGV[4] ~= '' then redis.call('HSET', KEYS[1], 'site', ARGV[4]) end
local token = string.format('%d', redis.call('HINCRBY', KEYS[1], 'token', 1))
redis.call('HSET', KEYS[1], 'holder', token .. ':' .. ARGV[1])
redis.call('SET', KEYS[2], ARGV[1] .. ' ' .. token .. ' ' .. ARGV[3], 'PX', ARGV[2])
local at = redis.call('HMGET', KEYS[1], 'last', 'chain')
return {'ok', token, at[1], at[2]}
`)

// renew lengthens the lease of whoever was the last to take it. KEYS meta, lease.
// ARGV holder, lease text, ttl in ms, acked. Answers: ok; deposed HOLDER.
var renew = redis.NewScript(`
local m = redis.call('HMGET', KEYS[1], 'holder', 'acked')
if m[1] ~= ARGV[1] then return {'deposed', m[1] or 'nobody'} end
if tonumber(ARGV[4]) > tonumber(m[2] or '0') then redis.call('HSET', KEYS[1], 'acked', ARGV[4]) end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return {'ok'}
`)

// resign lets go of the lease, if it is still the caller's. KEYS meta, lease. ARGV holder.
var resign = redis.NewScript(`
if redis.call('HGET', KEYS[1], 'holder') ~= ARGV[1] then return {'deposed'} end
redis.call('DEL', KEYS[2])
return {'ok'}
`)

// add appends records, and knows its own repetition: after a lost reply the same call is
// answered as the first one was. KEYS meta, facts. ARGV holder, token, the last record
// expected, its chain, the chain after, then chain and bytes of each record. Answers: ok LAST;
// deposed HOLDER; sequence LAST. With no records it stores nothing, and those before it
// can be waited for.
var add = redis.NewScript(`
local m = redis.call('HMGET', KEYS[1], 'holder', 'last', 'chain')
if m[1] ~= ARGV[1] then return {'deposed', m[1] or 'nobody'} end
local last, expected, n = tonumber(m[2]), tonumber(ARGV[3]), (#ARGV - 5) / 2
if last == expected + n and m[3] == ARGV[5] then
  redis.call('HSET', KEYS[1], 'acked', ARGV[3]) -- WAIT promises only what its own connection wrote
  return {'ok', m[2]}
end
if last ~= expected or m[3] ~= ARGV[4] then return {'sequence', m[2]} end
for i = 1, n do
  redis.call('XADD', KEYS[2], string.format('%d-0', last + i), 'd', ARGV[5 + 2 * i], 'c', ARGV[4 + 2 * i], 't', ARGV[2])
end
local now = string.format('%d', last + n)
redis.call('HSET', KEYS[1], 'last', now, 'chain', ARGV[5], 'acked', ARGV[3])
return {'ok', now}
`)

// stash stores a part of a snapshot that does not count yet. One that comes late, again,
// changes nothing: a part has its number, and a snapshot that counts is left alone. KEYS
// meta, parts. ARGV holder, number, bytes, seconds until it is gone by itself. Answers: ok;
// deposed HOLDER.
var stash = redis.NewScript(`
local m = redis.call('HMGET', KEYS[1], 'holder', 'snap_key')
if m[1] ~= ARGV[1] then return {'deposed', m[1] or 'nobody'} end
if m[2] == KEYS[2] then return {'ok'} end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
redis.call('EXPIRE', KEYS[2], ARGV[4])
return {'ok'}
`)

// swap puts a snapshot, whose parts are stored already, in place of the older one, and
// drops the records that it stands for. A reader of the older one has a minute to end.
// KEYS meta, facts, new parts, old parts. ARGV holder, seq, number of parts, checksum. Answers:
// ok; deposed HOLDER; sequence SNAP LAST; parts FOUND; missing.
var swap = redis.NewScript(`
local m = redis.call('HMGET', KEYS[1], 'holder', 'last', 'chain', 'snap', 'snap_chain', 'snap_key')
if m[1] ~= ARGV[1] then return {'deposed', m[1] or 'nobody'} end
local seq, last, was = tonumber(ARGV[2]), tonumber(m[2]), tonumber(m[4] or '0')
if seq > last or seq < was then return {'sequence', m[4] or '0', m[2]} end
local found = redis.call('HLEN', KEYS[3])
if found ~= tonumber(ARGV[3]) then return {'parts', tostring(found)} end
local chain = m[3]
if seq == was then
  chain = m[5] or ''
elseif seq < last then
  local id = ARGV[2] .. '-0'
  local e = redis.call('XRANGE', KEYS[2], id, id)[1]
  if not e then return {'missing'} end
  chain = e[2][4]
end
redis.call('PERSIST', KEYS[3])
redis.call('HSET', KEYS[1], 'snap', ARGV[2], 'snap_chain', chain, 'snap_key', KEYS[3], 'snap_parts', ARGV[3], 'snap_sum', ARGV[4])
redis.call('XTRIM', KEYS[2], 'MINID', string.format('%d-0', seq + 1))
if KEYS[4] ~= KEYS[3] and KEYS[4] == m[6] then redis.call('EXPIRE', KEYS[4], 60) end
return {'ok'}
`)

// plant makes a snapshot, whose parts are stored already, the beginning of an empty
// journal. KEYS meta, parts. ARGV holder, seq, number of parts, checksum, chain. Answers: ok;
// deposed HOLDER; sequence LAST; parts FOUND.
var plant = redis.NewScript(`
local m = redis.call('HMGET', KEYS[1], 'holder', 'last', 'snap_key', 'chain')
if m[1] ~= ARGV[1] then return {'deposed', m[1] or 'nobody'} end
if m[4] == ARGV[5] and m[2] == ARGV[2] then return {'ok'} end
if m[2] ~= '0' or m[3] then return {'sequence', m[2]} end
local found = redis.call('HLEN', KEYS[2])
if found ~= tonumber(ARGV[3]) then return {'parts', tostring(found)} end
redis.call('PERSIST', KEYS[2])
redis.call('HSET', KEYS[1], 'last', ARGV[2], 'chain', ARGV[5], 'acked', ARGV[2], 'snap', ARGV[2], 'snap_chain', ARGV[5], 'snap_key', KEYS[2], 'snap_parts', ARGV[3], 'snap_sum', ARGV[4])
return {'ok'}
`)

// adopt moves a journal to another site, while nobody leads. KEYS meta, lease. ARGV site,
// version. Answers: ok WAS; held LEASE; version VERSION.
var adopt = redis.NewScript(`
local m = redis.call('HMGET', KEYS[1], 'version', 'site')
if not m[1] or m[1] ~= ARGV[2] then return {'version', m[1] or 'none'} end
local lease = redis.call('GET', KEYS[2])
if lease then return {'held', lease} end
redis.call('HSET', KEYS[1], 'site', ARGV[1])
return {'ok', m[2] or ''}
`)
