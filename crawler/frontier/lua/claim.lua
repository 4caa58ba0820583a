#!lua flags=allow-oom
-- claim: hand the best URLs of due queues to the owner. Needs the fence. Returns expired claims to their queues first.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack {request id (session-number), engine run id, urls max, urls per queue max,
--       claim ahead (ms), visibility timeout (ms), default delay (ms), out max}
-- returns {'FENCED'} | {'RECOVER'} | {'OK', next due (ms) or -1, flat batch, flat deaths}; the batch repeats
--       queue, domain, delay (ms, -1 unknown), n, then n times token, score, member, origin ('' when the member says it);
--       a token is 'epoch.request.serial'; deaths are fingerprint, 'deaths session' of URLs that processes died with
--@include _fence _record _queue _block
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
local function requeue(token, is_expired)
  local packed = call('HGET', P .. 'u', token)
  if not packed then return end
  local score, queue, domain, member = unpack_record(packed)
  call('HDEL', P .. 'u', token)
  if is_expired then
    if string.match(token, '^%d+%.(.*)%-%d+%.%d+$') ~= session then score = text_of(with_delivery(tonumber(score))) end
    call('HINCRBY', P .. 'd:' .. domain, 'claimed', -1)
    call('HINCRBY', M, 'expired', 1)
    call('HINCRBY', P .. 'w:' .. queue, 'out', -1)
  else
    call('HINCRBY', P .. 'd:' .. domain, 'retrying', -1)
  end
  call('HINCRBY', P .. 'd:' .. domain, 'queued', 1)
  put(queue, {score, member})
  wake(queue, default_delay)
end

for _, token in ipairs(call('ZRANGE', P .. 'o', 0, 63)) do
  call('ZREM', P .. 'o', token)
  requeue(token, true)
end
for _, token in ipairs(call('ZRANGEBYSCORE', P .. 'x', '-inf', now, 'LIMIT', 0, 64)) do
  call('ZREM', P .. 'x', token)
  requeue(token, true)
end
for _, token in ipairs(call('ZRANGEBYSCORE', P .. 'r', '-inf', now, 'LIMIT', 0, 64)) do
  call('ZREM', P .. 'r', token)
  requeue(token, false)
end

local batch = {}
local function put_batch(...)
  for _, value in ipairs({...}) do batch[#batch + 1] = value end
end

-- The call was repeated because its reply was lost: the same batch again, less what has expired since.
local function repeat_batch()
  local prefix, again = epoch .. '.' .. request .. '.', {}
  for _, token in ipairs(call('ZRANGE', P .. 'x', 0, -1)) do
    if string.sub(token, 1, #prefix) == prefix then
      local score, queue, domain, member = unpack_record(call('HGET', P .. 'u', token))
      local serial = tonumber(string.sub(token, #prefix + 1))
      again[#again + 1] = {
        serial = serial, token = token, queue = queue, domain = domain, score = score, member = member,
      }
    end
  end
  table.sort(again, function(one, other) return one.serial < other.serial end)
  local first = 1
  while first <= #again do
    local queue, last = again[first].queue, first
    while again[last + 1] and again[last + 1].queue == queue do last = last + 1 end
    put_batch(queue, again[first].domain, call('HGET', P .. 'w:' .. queue, 'delay') or '-1', last - first + 1)
    for i = first, last do
      local one = again[i]
      put_batch(one.token, one.score, one.member, listed_origin(queue, one.member))
    end
    first = last + 1
  end
end

-- Take the best URLs of due queues: a list of {queue, domain, delay or '-1', {member, score, ...}}.
local function take_due()
  local taken, asleep, left = {}, {}, urls_max
  for _, queue in ipairs(call('ZRANGEBYSCORE', P .. 'ready', '-inf', now, 'LIMIT', 0, urls_max)) do
    if left <= 0 then break end
    local w = call('HMGET', P .. 'w:' .. queue, 'next', 'delay', 'out', 'guest', 'guest_seen', 'wish', 'domain')
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
      local best = n > 0 and take(queue, n) or {}
      local got = #best / 2
      if got > 0 then
        taken[#taken + 1] = {queue, w[7] or queue, w[2] or '-1', best}
        call('HINCRBY', P .. 'w:' .. queue, 'out', got)
        if w[6] then call('HDEL', P .. 'w:' .. queue, 'wish', 'guest_seen') end
        left = left - got
      end
      local more = w[2] and delay == 0 and out + got < out_max and call('EXISTS', head_of(queue)) == 1
      if not more then asleep[#asleep + 1] = queue end
    end
  end
  if #asleep > 0 then call('ZREM', P .. 'ready', unpack(asleep)) end
  return taken
end

local function hand_out(taken)
  local records, deadlines, domains, serial = {}, {}, {}, 0
  for _, of in ipairs(taken) do
    local queue, domain, best = of[1], of[2], of[4]
    put_batch(queue, domain, of[3], #best / 2)
    domains[domain] = (domains[domain] or 0) + #best / 2
    for i = 1, #best, 2 do
      serial = serial + 1
      local token, score = epoch .. '.' .. request .. '.' .. serial, text_of(tonumber(best[i + 1]))
      records[2 * serial - 1], records[2 * serial] = token, pack_record(score, queue, domain, best[i])
      deadlines[2 * serial - 1], deadlines[2 * serial] = now + visibility, token
      put_batch(token, score, best[i], listed_origin(queue, best[i]))
    end
  end
  call('HSET', P .. 'u', unpack(records))
  call('ZADD', P .. 'x', unpack(deadlines))
  for domain, n in pairs(domains) do bump(P .. 'd:' .. domain, {'queued', -n, 'claimed', n}) end
  call('HSET', M, 'request', request)
end

if meta[4] == request then
  repeat_batch()
else
  local taken = take_due()
  if #taken > 0 then hand_out(taken) end
end

local soonest = -1
for _, key in ipairs({'ready', 'r', 'x'}) do
  local first = call('ZRANGE', P .. key, 0, 0, 'WITHSCORES')
  local due = tonumber(first[2] or nil)
  if due and (soonest < 0 or due < soonest) then soonest = due end
end
if call('EXISTS', P .. 'o') == 1 then soonest = 0 end
return {'OK', string.format('%.0f', soonest), batch, call('HGETALL', P .. 'k')}
