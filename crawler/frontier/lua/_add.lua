-- Adding URLs: used by add, and by ack for the out-links of its own partition.
-- item = {fingerprint, queue, domain, score as text, depth, member, origin}; with an origin, the member lacks its letter
-- With a limit of depth, z<run>:<bucket> holds fingerprint -> depth of all pending URLs: a shorter path may be found later.
-- Writes are gathered by key: one call with many members costs a fraction of many calls.

local function push(list, a, b)
  local n = #list
  list[n + 1], list[n + 2] = a, b
end

-- n URLs of a queue are new to the crawl.
local function meet(r, domain, n)
  if r[URLS] == 0 then
    count(total, 'queues', 1)
    if domain ~= r.queue then set_more(r, 'domain', domain) end
    if call('ZCARD', P .. 'top') < TOP_MAX then call('ZADD', P .. 'top', 'NX', 0, r.queue) end
  end
  add_to(r, URLS, n)
end

local function enter(r, entries, domain, default_delay_ms)
  put(r, entries)
  meet(r, domain, #entries / 2)
  wake(r, default_delay_ms)
end

-- Returns a string of one digit per item (1 new, 0 seen, 2 depth lowered).
local function add_items(items, run, default_delay_ms, is_limited)
  local buckets = tonumber(call('HGET', M, 'buckets' .. run) or nil) or 1
  local low, seen, depths = level_of(buckets), P .. 's' .. run .. ':', P .. 'z' .. run .. ':'
  local outcome, queues, domain_of, added = {}, {}, {}, 0
  for i, item in ipairs(items) do
    local bucket, queue = bucket_of(item[1], buckets, low), item[2]
    if call('SADD', seen .. bucket, item[1]) == 1 then
      outcome[i], added = '1', added + 1
      local entries = queues[queue]
      if not entries then
        entries = {}
        queues[queue], domain_of[queue] = entries, item[3]
      end
      push(entries, item[4], item[7] == '' and item[6] or listed_member(queue, item[7], item[6]))
      if is_limited then call('HSET', depths .. bucket, item[1], item[5]) end
    else
      outcome[i] = '0'
      if is_limited and item[5] < (tonumber(call('HGET', depths .. bucket, item[1]) or nil) or 0) then
        outcome[i] = '2'
        call('HSET', depths .. bucket, item[1], item[5])
      end
    end
  end
  if added > 0 then
    count(total, 'added', added)
    local counts = bump(M, {['seen' .. run] = added})
    seen_grow(run, buckets, counts['seen' .. run])
    for queue, entries in pairs(queues) do enter(record_of(queue), entries, domain_of[queue], default_delay_ms) end
  end
  return table.concat(outcome)
end
