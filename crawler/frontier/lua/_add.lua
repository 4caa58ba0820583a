-- Adding URLs: used by add, and by ack for the out-links of its own partition.
-- A URL is nine values of a list: fingerprint, queue, domain, score as text, member, origin, depth, reason, seed. With an
-- origin ('' for most), the member lacks its letter; with a reason ('' for most) the URL is parked at once, as are those
-- beyond urls_max of a queue (0: no such budget); seed (0 for none) is the number of the seed it descends from.
-- With a limit of depth, z<run>:<bucket> holds fingerprint -> depth of all pending URLs: a shorter path may be found later.
-- What is new is gathered, over all commits of an ack, and enters its queues at the end: one call with many members costs
-- a fraction of many calls.
local ITEM = 9 -- values
local arrived, parked_ones, arrivals = {}, {}, {} -- queue -> {score, member, ...}; {queue, reason, entry}; names of queues
local domain_of = {}

local function push(list, a, b)
  local n = #list
  list[n + 1], list[n + 2] = a, b
end

-- A URL is new to the crawl.
local function arrive(items, i)
  local queue, domain, score, member, origin, reason = items[i + 1], items[i + 2], items[i + 3], items[i + 4], items[i + 5], items[i + 7]
  if origin ~= '' then member = listed_member(queue, origin, member) end
  if not domain_of[queue] then arrivals[#arrivals + 1], domain_of[queue] = queue, domain end
  if reason ~= '' then
    parked_ones[#parked_ones + 1] = {queue, reason, {score, member}}
  elseif arrived[queue] then
    push(arrived[queue], score, member)
  else
    arrived[queue] = {score, member}
  end
  count_seed(items[i + 8], ADDED, 1)
end

-- A host whose domain has a boost, which stands under the domain's own name whether that is a queue or not: the operator's
-- order did not know the host, or not that it would have URLs again.
local function follow_boost(r, domain)
  local boost = domain ~= r.queue and meta().boosts and call('ZSCORE', P .. 'boosts', domain)
  if boost and not r[MORE].boost then change_boost(r, tonumber(boost)) end
end

-- n URLs of a queue are new to the crawl.
local function meet(r, domain, n)
  if r[URLS] == 0 then
    count(total, 'queues', 1)
    if domain ~= r.queue then set_more(r, 'domain', domain) end
    if call('ZCARD', P .. 'top') < TOP_MAX then call('ZADD', P .. 'top', 'NX', 0, r.queue) end
  end
  add_to(r, URLS, n)
  follow_boost(r, domain)
end

local function enter(r, entries, default_delay_ms, urls_max)
  local n = #entries / 2
  local room = urls_max > 0 and math.max(0, urls_max - r[URLS]) or n
  meet(r, domain_of[r.queue], n)
  if room < n then
    local beyond = {}
    for i = 2 * room + 1, 2 * n do beyond[#beyond + 1], entries[i] = entries[i], nil end
    park(r.queue, 'urls', beyond)
  end
  if room > 0 then put_pending(r, entries, default_delay_ms) end
end

-- Returns a string of one digit for each URL from the first-th value on (1 new, 0 seen, 2 depth lowered).
local function add_items(items, first, run, is_limited)
  local buckets = buckets_of(run)
  local low, seen, depths = level_of(buckets), P .. 's' .. run .. ':', P .. 'z' .. run .. ':'
  local outcome, n, added = {}, 0, 0
  for i = first, #items, ITEM do
    local fp, depth = items[i], items[i + 6]
    local bucket, digit = bucket_of(fp, buckets, low), '0'
    if call('SADD', seen .. bucket, fp) == 1 then
      digit, added = '1', added + 1
      arrive(items, i)
      if is_limited then call('HSET', depths .. bucket, fp, depth) end
    elseif is_limited and depth < (tonumber(call('HGET', depths .. bucket, fp) or nil) or 0) then
      digit = '2'
      call('HSET', depths .. bucket, fp, depth)
    end
    n = n + 1
    outcome[n] = digit
  end
  if added > 0 then
    count(total, 'added', added)
    count(total, 'seen' .. run, added)
  end
  return table.concat(outcome)
end

-- What has arrived enters its queues.
local function enter_all(default_delay_ms, urls_max)
  read_queues(arrivals)
  for queue, entries in pairs(arrived) do enter(record_of(queue), entries, default_delay_ms, urls_max) end
  for _, one in ipairs(parked_ones) do
    meet(record_of(one[1]), domain_of[one[1]], 1)
    park(one[1], one[2], one[3])
  end
end

-- The totals, and what follows from them. The last that a script does.
local function write_added(run)
  local seen = write_totals()['seen' .. run]
  if seen then seen_grow(run, seen) end
end
