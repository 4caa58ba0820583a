-- Adding URLs: used by add, and by ack for the out-links of its own partition.
-- item = {fingerprint, queue, domain, score, depth, record}
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

-- A URL that is pending already was found on a shorter path: keep the smaller depth and the better score.
local function lower_depth(item)
  local packed = call('HGET', P .. 'u', item[1])
  if not packed or depth_of(packed) <= item[5] then return false end
  local record = cjson.decode(packed)
  record[R_DEPTH] = item[5]
  if item[4] > record[R_SCORE] then
    record[R_SCORE] = item[4]
    call('ZADD', P .. 'q:' .. item[2], 'XX', item[4], item[1])
  end
  call('HSET', P .. 'u', item[1], cjson.encode(record))
  return true
end

-- Returns a string of one digit per item (1 new, 0 seen, 2 depth lowered) and how many sleeping queues woke.
local function add_items(items, run, default_delay_ms)
  local buckets = tonumber(call('HGET', M, 'buckets' .. run) or nil) or 1
  local low, seen = level_of(buckets), P .. 's' .. run .. ':'
  local outcome, known, records, queues, domains = {}, {}, {}, {}, {}
  for i, item in ipairs(items) do
    if call('SADD', seen .. bucket_of(item[1], buckets, low), item[1]) == 1 then
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
  for _, i in ipairs(known) do
    if lower_depth(items[i]) then outcome[i] = '2' end
  end
  return table.concat(outcome), woken
end
