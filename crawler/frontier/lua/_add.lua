-- Adding URLs: used by add, and by ack for the out-links of its own partition.
-- item = {fingerprint, queue, domain, score, depth, record}

-- A URL that is pending already was found on a shorter path: keep the smaller depth and the better score.
local function lower_depth(item)
  local packed = call('HGET', P .. 'u', item[1])
  if not packed then return false end
  local record = cjson.decode(packed)
  if record[R_DEPTH] <= item[5] then return false end
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
  local outcome, fresh, queues, domains = {}, 0, {}, {}
  for i, item in ipairs(items) do
    if call('SADD', seen .. bucket_of(item[1], buckets, low), item[1]) == 1 then
      call('HSET', P .. 'u', item[1], item[6])
      call('ZADD', P .. 'q:' .. item[2], item[4], item[1])
      outcome[i] = '1'
      fresh = fresh + 1
      queues[item[2]] = true
      domains[item[3]] = (domains[item[3]] or 0) + 1
    else
      outcome[i] = lower_depth(item) and '2' or '0'
    end
  end
  local woken = 0
  if fresh > 0 then
    call('HINCRBY', M, 'added', fresh)
    seen_grow(run, buckets, fresh)
    for queue in pairs(queues) do woken = woken + wake(queue, default_delay_ms) end
    for domain, n in pairs(domains) do
      if call('HINCRBY', P .. 'd:' .. domain, 'queued', n) == n then call('ZADD', P .. 'domains', 'NX', 0, domain) end
    end
  end
  return table.concat(outcome), woken
end
