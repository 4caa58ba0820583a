-- Adding URLs: used by add, and by ack for the out-links of its own partition.
-- item = {fingerprint, queue, domain, score as text, depth, member, origin}; with an origin, the member lacks its letter
-- With a limit of depth, z<run>:<bucket> holds fingerprint -> depth of all pending URLs: a shorter path may be found later.
-- Writes are gathered by key: one call with many members costs a fraction of many calls.

local function push(list, a, b)
  local n = #list
  list[n + 1], list[n + 2] = a, b
end

-- Returns a string of one digit per item (1 new, 0 seen, 2 depth lowered) and how many sleeping queues woke.
local function add_items(items, run, default_delay_ms, is_limited)
  local buckets = tonumber(call('HGET', M, 'buckets' .. run) or nil) or 1
  local low, seen, depths, bucket_keys = level_of(buckets), P .. 's' .. run .. ':', P .. 'z' .. run .. ':', {}
  local outcome, queues, domains, domain_of, added = {}, {}, {}, {}, 0
  for i, item in ipairs(items) do
    local bucket, queue = bucket_of(item[1], buckets, low), item[2]
    local key = bucket_keys[bucket]
    if not key then
      key = seen .. bucket
      bucket_keys[bucket] = key
    end
    if call('SADD', key, item[1]) == 1 then
      outcome[i], added = '1', added + 1
      if not queues[queue] then queues[queue] = {} end
      push(queues[queue], item[4], item[7] == '' and item[6] or listed_member(queue, item[7], item[6]))
      domains[item[3]] = (domains[item[3]] or 0) + 1
      if queue ~= item[3] then domain_of[queue] = item[3] end
      if is_limited then call('HSET', depths .. bucket, item[1], item[5]) end
    else
      outcome[i] = '0'
      if is_limited and item[5] < (tonumber(call('HGET', depths .. bucket, item[1]) or nil) or 0) then
        outcome[i] = '2'
        call('HSET', depths .. bucket, item[1], item[5])
      end
    end
  end
  local woken = 0
  if added > 0 then
    local counts = bump(M, {'added', added, 'seen' .. run, added})
    seen_grow(run, buckets, counts[2])
    for queue, entries in pairs(queues) do
      put(queue, entries)
      if domain_of[queue] then call('HSET', P .. 'w:' .. queue, 'domain', domain_of[queue]) end
      woken = woken + wake(queue, default_delay_ms)
    end
    for domain, n in pairs(domains) do
      if call('HINCRBY', P .. 'd:' .. domain, 'queued', n) == n then call('ZADD', P .. 'domains', 'NX', 0, domain) end
    end
  end
  return table.concat(outcome), woken
end
