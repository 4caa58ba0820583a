#!lua
-- restore: URLs whose commits are on disk become seen and done, with what their index lines count, wherever the engine
-- has them now. For the rebuild of a crawl that the engine lost; needs no fence. Idempotent. Refused when out of memory.
-- KEYS  meta
-- ARGV  run, msgpack list of {fingerprint, queue, domain, status class, bytes, fetch (ms)}
-- returns digits: per item 1 it was unknown, 2 it was pending, 0 it had ended before
--@include _fence _record _queue _seen _end
local run, items = ARGV[1], cmsgpack.unpack(ARGV[2])
local buckets = tonumber(call('HGET', M, 'buckets' .. run) or nil) or 1
local low, seen = level_of(buckets), P .. 's' .. run .. ':'

-- Takes a pending URL from wherever it waits; the counter of its domain that it leaves.
local function take_away(fp, queue)
  call('HDEL', P .. 'u', fp)
  if call('HDEL', P .. 'c', fp) == 1 then
    call('ZREM', P .. 'x', fp)
    call('ZREM', P .. 'o', fp)
    settle(queue, 1, 0, -1)
    return 'claimed'
  end
  if call('ZREM', P .. 'r', fp) == 1 then return 'retrying' end
  call('ZREM', P .. 'q:' .. queue, fp)
  if call('EXISTS', P .. 'q:' .. queue) == 0 then call('ZREM', P .. 'ready', queue) end
  return 'queued'
end

local outcome, added, done, counts, domains = {}, 0, 0, {}, {}
local function count(of, name, n) of[name] = (of[name] or 0) + n end

for i, item in ipairs(items) do
  local fp, domain = item[1], item[3]
  local mine = domains[domain] or {}
  outcome[i] = '0'
  if call('SADD', seen .. bucket_of(fp, buckets, low), fp) == 1 then
    outcome[i] = '1'
    added = added + 1
  elseif call('HEXISTS', P .. 'u', fp) == 1 then
    outcome[i] = '2'
    count(mine, take_away(fp, item[2]), -1)
  end
  if outcome[i] ~= '0' then
    done = done + 1
    for _, of in ipairs({counts, mine}) do
      count(of, 's' .. item[4], 1)
      count(of, 'bytes', item[5])
    end
    count(mine, 'fetch_ms', item[6])
    domains[domain] = mine
    call('ZINCRBY', P .. 'domains', 1, domain)
  end
end

local function flat(of, changes)
  for name, n in pairs(of) do changes[#changes + 1], changes[#changes + 2] = name, n end
  return changes
end

if done > 0 then
  local total = bump(M, flat(counts, {'added', added, 'done', done, 'seen' .. run, added}))
  seen_grow(run, buckets, total[3])
  for domain, mine in pairs(domains) do bump(P .. 'd:' .. domain, flat(mine, {})) end
end
return table.concat(outcome)
