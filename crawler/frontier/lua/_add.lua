-- Adding URLs: used by add, and by ack for the out-links of its own partition.
-- item = {fingerprint, queue, domain, score as text, depth, record}
-- Writes are gathered by key: one call with many members costs a fraction of many calls.
local ARGUMENTS_MAX = 2000 -- Lua's stack holds 8,000

local function write(command, key, arguments)
  for i = 1, #arguments, ARGUMENTS_MAX do
    call(command, key, unpack(arguments, i, math.min(i + ARGUMENTS_MAX - 1, #arguments)))
  end
end

local function push(list, a, b)
  local n = #list
  list[n + 1], list[n + 2] = a, b
end

-- A URL that is pending already was found on a shorter path: keep the smaller depth and the better score. Its record
-- as it is from now on, or nil when nothing changes.
local function lower_depth(item, packed)
  if not packed or depth_of(packed) <= item[5] then return nil end
  local record = cjson.decode(packed)
  record[R_DEPTH] = item[5]
  if tonumber(item[4]) > record[R_SCORE] then
    record[R_SCORE] = tonumber(item[4])
    call('ZADD', P .. 'q:' .. item[2], 'XX', item[4], item[1])
  end
  packed = cjson.encode(record)
  call('HSET', P .. 'u', item[1], packed)
  return packed
end

-- The items that were seen before, by their index: '2' into outcome for those whose depth was lowered.
local function lower_depths(items, known, outcome)
  local latest = {} -- a URL may come twice in one call
  for first = 1, #known, ARGUMENTS_MAX do
    local last, wanted = math.min(first + ARGUMENTS_MAX - 1, #known), {}
    for i = first, last do wanted[#wanted + 1] = items[known[i]][1] end
    local records = call('HMGET', P .. 'u', unpack(wanted))
    for i = first, last do
      local item = items[known[i]]
      local lowered = lower_depth(item, latest[item[1]] or records[i - first + 1])
      if lowered then latest[item[1]], outcome[known[i]] = lowered, '2' end
    end
  end
end

-- Returns a string of one digit per item (1 new, 0 seen, 2 depth lowered) and how many sleeping queues woke.
local function add_items(items, run, default_delay_ms)
  local buckets = tonumber(call('HGET', M, 'buckets' .. run) or nil) or 1
  local low, seen, bucket_keys = level_of(buckets), P .. 's' .. run .. ':', {}
  local outcome, known, records, queues, domains = {}, {}, {}, {}, {}
  for i, item in ipairs(items) do
    local bucket = bucket_of(item[1], buckets, low)
    local key = bucket_keys[bucket]
    if not key then
      key = seen .. bucket
      bucket_keys[bucket] = key
    end
    if call('SADD', key, item[1]) == 1 then
      outcome[i] = '1'
      push(records, item[1], item[6])
      if not queues[item[2]] then queues[item[2]] = {} end
      push(queues[item[2]], item[4], item[1])
      domains[item[3]] = (domains[item[3]] or 0) + 1
    else
      outcome[i] = '0'
      known[#known + 1] = i
    end
  end
  local woken = 0
  if #records > 0 then
    write('HSET', P .. 'u', records)
    local counts = bump(M, {'added', #records / 2, 'seen' .. run, #records / 2})
    seen_grow(run, buckets, counts[2])
    for queue, members in pairs(queues) do
      write('ZADD', P .. 'q:' .. queue, members)
      woken = woken + wake(queue, default_delay_ms)
    end
    for domain, n in pairs(domains) do
      if call('HINCRBY', P .. 'd:' .. domain, 'queued', n) == n then call('ZADD', P .. 'domains', 'NX', 0, domain) end
    end
  end
  if #known > 0 then lower_depths(items, known, outcome) end
  return table.concat(outcome), woken
end
