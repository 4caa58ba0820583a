-- Adding URLs: used by add, and by ack for the out-links of its own partition.
-- item = {fingerprint, queue, domain, score as text, depth, member, origin, reason, seed}; with an origin, the member lacks
-- its letter; with a reason (nil for most) the URL is parked at once, as are those beyond urls_max of a queue (0: no such
-- budget); seed (nil for none) is the number of the seed it descends from.
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

local function enter(r, entries, domain, default_delay_ms, urls_max)
  local n = #entries / 2
  local room = urls_max > 0 and math.max(0, urls_max - r[URLS]) or n
  meet(r, domain, n)
  if room < n then
    local beyond = {}
    for i = 2 * room + 1, 2 * n do beyond[#beyond + 1], entries[i] = entries[i], nil end
    park(r.queue, 'urls', beyond)
  end
  if room > 0 then put_pending(r, entries, default_delay_ms) end
end

-- Returns a string of one digit per item (1 new, 0 seen, 2 depth lowered).
local function add_items(items, run, default_delay_ms, is_limited, urls_max)
  local buckets = tonumber(call('HGET', M, 'buckets' .. run) or nil) or 1
  local low, seen, depths = level_of(buckets), P .. 's' .. run .. ':', P .. 'z' .. run .. ':'
  local outcome, queues, parked, domain_of, added = {}, {}, {}, {}, 0
  for i, item in ipairs(items) do
    local bucket, queue = bucket_of(item[1], buckets, low), item[2]
    if call('SADD', seen .. bucket, item[1]) == 1 then
      outcome[i], added = '1', added + 1
      count_seed(item[9], ADDED, 1)
      local member = item[7] == '' and item[6] or listed_member(queue, item[7], item[6])
      domain_of[queue] = item[3]
      if item[8] then
        parked[#parked + 1] = {queue, item[8], {item[4], member}}
      else
        if not queues[queue] then queues[queue] = {} end
        push(queues[queue], item[4], member)
      end
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
    for queue, entries in pairs(queues) do
      enter(record_of(queue), entries, domain_of[queue], default_delay_ms, urls_max)
    end
    for _, one in ipairs(parked) do
      meet(record_of(one[1]), domain_of[one[1]], 1)
      park(one[1], one[2], one[3])
    end
  end
  return table.concat(outcome)
end
