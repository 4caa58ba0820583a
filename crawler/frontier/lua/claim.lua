#!lua flags=allow-oom
-- claim: hand the best URLs of due queues to the owner. Needs the fence. Returns expired claims to their queues first.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack {request id (session-number), engine run id, urls max, urls per queue max,
--       claim ahead (ms), visibility timeout (ms), default delay (ms), out max}
-- returns {'FENCED'} | {'RECOVER'} | {'OK', next due (ms) or -1, flat batch}; the batch repeats
--       queue, delay (ms, -1 unknown), n, then n times fingerprint, token, record; a token is 'epoch.request.serial'
--@include _fence _record _queue
local session, epoch, now = ARGV[1], ARGV[2], tonumber(ARGV[3])
local a = cmsgpack.unpack(ARGV[4])
local request, urls_max, per_queue, ahead, visibility = a[1], a[3], a[4], a[5], a[6]
local default_delay, out_max = a[7], a[8]
if not fence(session, epoch, now) then return {'FENCED'} end
local meta = call('HMGET', M, 'engine', 'clock', 'hold', 'request')
if meta[1] ~= a[2] then return {'RECOVER'} end
now = math.max(now, tonumber(meta[2] or nil) or 0)
local hold = tonumber(meta[3] or nil)

-- Back to its queue: an expired claim or a retry that is due. A delivery whose owner vanished is counted; one of the
-- session that asks now is not, for that has not died of it (its leases were taken anew, after a silence of the engine).
local function requeue(fingerprint, delivered)
  local packed = call('HGET', P .. 'u', fingerprint)
  if not packed then return end
  local record = cjson.decode(packed)
  if delivered then
    local owner = string.match(call('HGET', P .. 'c', fingerprint) or '', '^%d+%.(.*)%-%d+%.%d+$')
    if owner ~= session then
      record[R_DELIVERIES] = record[R_DELIVERIES] + 1
      call('HSET', P .. 'u', fingerprint, cjson.encode(record))
    end
    call('HDEL', P .. 'c', fingerprint)
    call('HINCRBY', P .. 'd:' .. record[R_DOMAIN], 'claimed', -1)
    call('HINCRBY', M, 'expired', 1)
    call('HINCRBY', P .. 'w:' .. record[R_QUEUE], 'out', -1)
  else
    call('HINCRBY', P .. 'd:' .. record[R_DOMAIN], 'retrying', -1)
  end
  call('HINCRBY', P .. 'd:' .. record[R_DOMAIN], 'queued', 1)
  call('ZADD', P .. 'q:' .. record[R_QUEUE], record[R_SCORE], fingerprint)
  wake(record[R_QUEUE], default_delay)
end

for _, fp in ipairs(call('ZRANGE', P .. 'o', 0, 63)) do
  call('ZREM', P .. 'o', fp)
  requeue(fp, true)
end
for _, fp in ipairs(call('ZRANGEBYSCORE', P .. 'x', '-inf', now, 'LIMIT', 0, 64)) do
  call('ZREM', P .. 'x', fp)
  requeue(fp, true)
end
for _, fp in ipairs(call('ZRANGEBYSCORE', P .. 'r', '-inf', now, 'LIMIT', 0, 64)) do
  call('ZREM', P .. 'r', fp)
  requeue(fp, false)
end

local batch = {}
local function put(...)
  for _, value in ipairs({...}) do batch[#batch + 1] = value end
end

-- The call was repeated because its reply was lost: the same batch again, less what has expired since.
local function repeat_batch()
  local prefix, claims, again = epoch .. '.' .. request .. '.', call('HGETALL', P .. 'c'), {}
  for i = 1, #claims, 2 do
    local token = claims[i + 1]
    if string.sub(token, 1, #prefix) == prefix then
      local record = call('HGET', P .. 'u', claims[i])
      local serial = tonumber(string.sub(token, #prefix + 1))
      again[#again + 1] = {serial = serial, queue = place_of(record), fp = claims[i], token = token, record = record}
    end
  end
  table.sort(again, function(one, other) return one.serial < other.serial end)
  local first = 1
  while first <= #again do
    local queue, last = again[first].queue, first
    while again[last + 1] and again[last + 1].queue == queue do last = last + 1 end
    put(queue, call('HGET', P .. 'w:' .. queue, 'delay') or '-1', last - first + 1)
    for i = first, last do put(again[i].fp, again[i].token, again[i].record) end
    first = last + 1
  end
end

-- Take the best URLs of due queues: a list of {queue, delay or '-1', how many}, and their fingerprints in that order.
local function take_due()
  local taken, fingerprints, asleep, left = {}, {}, {}, urls_max
  for _, queue in ipairs(call('ZRANGEBYSCORE', P .. 'ready', '-inf', now, 'LIMIT', 0, urls_max)) do
    if left <= 0 then break end
    local w = call('HMGET', P .. 'w:' .. queue, 'next', 'delay', 'out', 'guest', 'guest_seen', 'wish')
    local delay, out = tonumber(w[2] or nil) or default_delay, tonumber(w[3] or nil) or 0
    local due = due_of(tonumber(w[1] or nil), delay, hold)
    if (w[4] or w[6]) and out == 0 and (delay > 0 or not w[2]) then
      local seen = tonumber(w[5] or nil)
      if w[4] then
        due = math.max(due, guest_until(queue, w[4], seen, now, delay, tonumber(w[1] or nil)))
      elseif w[6] ~= SERVED and due <= now then
        due = wish_until(queue, seen, now)
      end
    end
    if out > 0 and delay > 0 then
      asleep[#asleep + 1] = queue -- the last of its claims to end brings it back
    elseif due > now then
      call('ZADD', P .. 'ready', due, queue)
    else
      -- A queue whose delay is unknown gives one URL: its robots.txt may ask for more patience than our default.
      local n = 1
      if w[2] then n = delay > 0 and math.max(1, math.floor(ahead / delay)) or per_queue end
      n = math.min(n, per_queue, left, math.max(0, out_max - out))
      local best = n > 0 and call('ZPOPMAX', P .. 'q:' .. queue, n) or {}
      local got = #best / 2
      if got > 0 then
        for i = 1, #best, 2 do fingerprints[#fingerprints + 1] = best[i] end
        taken[#taken + 1] = {queue, w[2] or '-1', got}
        call('HINCRBY', P .. 'w:' .. queue, 'out', got)
        if w[6] then call('HDEL', P .. 'w:' .. queue, 'wish', 'guest_seen') end
        left = left - got
      end
      local more = w[2] and delay == 0 and out + got < out_max and call('EXISTS', P .. 'q:' .. queue) == 1
      if not more then asleep[#asleep + 1] = queue end
    end
  end
  if #asleep > 0 then call('ZREM', P .. 'ready', unpack(asleep)) end
  return taken, fingerprints
end

local function hand_out(taken, fingerprints)
  local records = call('HMGET', P .. 'u', unpack(fingerprints))
  local tokens, deadlines, domains, serial = {}, {}, {}, 0
  for _, of in ipairs(taken) do
    put(of[1], of[2], of[3])
    local _, domain = place_of(records[serial + 1])
    domains[domain] = (domains[domain] or 0) + of[3]
    for _ = 1, of[3] do
      serial = serial + 1
      local fp, token = fingerprints[serial], epoch .. '.' .. request .. '.' .. serial
      tokens[2 * serial - 1], tokens[2 * serial] = fp, token
      deadlines[2 * serial - 1], deadlines[2 * serial] = now + visibility, fp
      put(fp, token, records[serial])
    end
  end
  call('HSET', P .. 'c', unpack(tokens))
  call('ZADD', P .. 'x', unpack(deadlines))
  for domain, n in pairs(domains) do bump(P .. 'd:' .. domain, {'queued', -n, 'claimed', n}) end
  call('HSET', M, 'request', request)
end

if meta[4] == request then
  repeat_batch()
else
  local taken, fingerprints = take_due()
  if #taken > 0 then hand_out(taken, fingerprints) end
end

local soonest = -1
for _, key in ipairs({'ready', 'r', 'x'}) do
  local first = call('ZRANGE', P .. key, 0, 0, 'WITHSCORES')
  local due = tonumber(first[2] or nil)
  if due and (soonest < 0 or due < soonest) then soonest = due end
end
if call('EXISTS', P .. 'o') == 1 then soonest = 0 end
return {'OK', string.format('%.0f', soonest), batch}
