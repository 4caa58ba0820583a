#!lua flags=allow-oom
-- claim: hand the best URLs of due queues to the owner. Needs the fence. Returns expired claims to their queues first.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack {request id, engine run id, urls max, urls per queue max, claim ahead (ms),
--       visibility timeout (ms), default delay (ms), out max}
-- returns {'FENCED'} | {'RECOVER'} | {'OK', next due (ms) or -1, flat batch}; the batch repeats
--       queue, delay (ms, -1 unknown), n, then n times fingerprint, token, record; a token is 'epoch.request.serial'
--@include _fence _record _queue
local session, epoch, now = ARGV[1], ARGV[2], tonumber(ARGV[3])
local a = cmsgpack.unpack(ARGV[4])
local request, urls_max, per_queue, ahead, visibility = a[1], a[3], a[4], a[5], a[6]
local default_delay, out_max = a[7], a[8]
if not fence(session, epoch, now) then return {'FENCED'} end
if call('HGET', M, 'engine') ~= a[2] then return {'RECOVER'} end
now = math.max(now, tonumber(call('HGET', M, 'clock') or nil) or 0)

-- Back to its queue: an expired claim (its delivery counted) or a retry that is due.
local function requeue(fingerprint, delivered)
  local packed = call('HGET', P .. 'u', fingerprint)
  if not packed then return end
  local record = cjson.decode(packed)
  if delivered then
    record[R_DELIVERIES] = record[R_DELIVERIES] + 1
    call('HSET', P .. 'u', fingerprint, cjson.encode(record))
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
-- The call was repeated because its reply was lost: the same batch again.
if call('HGET', M, 'request') == request then
  local again = {}
  local prefix = epoch .. '.' .. request .. '.'
  local claims = call('HGETALL', P .. 'c')
  for i = 1, #claims, 2 do
    if string.sub(claims[i + 1], 1, #prefix) == prefix then again[#again + 1] = {claims[i], claims[i + 1]} end
  end
  for _, pair in ipairs(again) do
    local packed = call('HGET', P .. 'u', pair[1])
    local queue = cjson.decode(packed)[R_QUEUE]
    batch[#batch + 1] = queue
    batch[#batch + 1] = call('HGET', P .. 'w:' .. queue, 'delay') or '-1'
    batch[#batch + 1] = 1
    batch[#batch + 1] = pair[1]
    batch[#batch + 1] = pair[2]
    batch[#batch + 1] = packed
  end
else
  local hold = tonumber(call('HGET', M, 'hold') or nil)
  local left, serial = urls_max, 0
  for _, queue in ipairs(call('ZRANGEBYSCORE', P .. 'ready', '-inf', now, 'LIMIT', 0, urls_max)) do
    if left <= 0 then break end
    local w = call('HMGET', P .. 'w:' .. queue, 'next', 'delay', 'out')
    local delay, out = tonumber(w[2]) or default_delay, tonumber(w[3]) or 0
    local due = due_of(tonumber(w[1]), delay, hold)
    if out > 0 and delay > 0 then
      call('ZREM', P .. 'ready', queue) -- the last of its claims to end brings it back
    elseif due > now then
      call('ZADD', P .. 'ready', due, queue)
    else
      -- A queue whose delay is unknown gives one URL: its robots.txt may ask for more patience than our default.
      local n = 1
      if w[2] then n = delay > 0 and math.max(1, math.floor(ahead / delay)) or per_queue end
      n = math.min(n, per_queue, left, math.max(0, out_max - out))
      local members = n > 0 and call('ZREVRANGE', P .. 'q:' .. queue, 0, n - 1) or {}
      if #members > 0 then
        call('ZREM', P .. 'q:' .. queue, unpack(members))
        local records = call('HMGET', P .. 'u', unpack(members))
        batch[#batch + 1] = queue
        batch[#batch + 1] = w[2] or '-1'
        batch[#batch + 1] = #members
        local tokens, deadlines = {}, {}
        for i, fp in ipairs(members) do
          serial = serial + 1
          local token = epoch .. '.' .. request .. '.' .. serial
          tokens[#tokens + 1] = fp
          tokens[#tokens + 1] = token
          deadlines[#deadlines + 1] = now + visibility
          deadlines[#deadlines + 1] = fp
          batch[#batch + 1] = fp
          batch[#batch + 1] = token
          batch[#batch + 1] = records[i]
        end
        call('HSET', P .. 'c', unpack(tokens))
        call('ZADD', P .. 'x', unpack(deadlines))
        call('HINCRBY', P .. 'w:' .. queue, 'out', #members)
        local domain = cjson.decode(records[1])[R_DOMAIN]
        call('HINCRBY', P .. 'd:' .. domain, 'queued', -#members)
        call('HINCRBY', P .. 'd:' .. domain, 'claimed', #members)
        left = left - #members
      end
      local more = w[2] and delay == 0 and out + #members < out_max and call('EXISTS', P .. 'q:' .. queue) == 1
      if not more then call('ZREM', P .. 'ready', queue) end
    end
  end
  if serial > 0 then call('HSET', M, 'request', request) end
end

local soonest = -1
for _, key in ipairs({'ready', 'r', 'x'}) do
  local first = call('ZRANGE', P .. key, 0, 0, 'WITHSCORES')
  local due = tonumber(first[2] or nil)
  if due and (soonest < 0 or due < soonest) then soonest = due end
end
if call('EXISTS', P .. 'o') == 1 then soonest = 0 end
return {'OK', string.format('%.0f', soonest), batch}
