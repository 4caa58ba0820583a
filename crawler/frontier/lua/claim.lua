#!lua flags=allow-oom
-- claim: hand the best URLs of due queues to the owner. Needs the fence. Returns expired claims to their queues first, and packs
-- the records of queues that have been idle for long.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack {request id (session-number), engine run id, urls max, urls per queue max,
--       claim ahead (ms), visibility timeout (ms), default delay (ms), out max}
-- returns {'FENCED'} | {'RECOVER'} | {'OK', next due (ms) or -1, flat batch, flat deaths}; the batch repeats
--       queue, domain, delay (ms, -1 unknown), n, then n times token, score, member, origin ('' when the member says it);
--       a token is 'epoch.request.serial'; deaths are fingerprint, 'deaths session' of URLs that processes died with
--@include _fence _record _shelf _idle _queue _guest _block
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
  local score, queue, _, member = unpack_record(packed)
  local r = record_of(queue)
  call('HDEL', P .. 'u', token)
  if is_expired then
    if string.match(token, '^%d+%.(.*)%-%d+%.%d+$') ~= session then score = text_of(with_delivery(tonumber(score))) end
    count(total, 'expired', 1)
    set(r, 'out', r.out - 1)
  else
    set(r, 'retrying', r.retrying - 1)
  end
  put(r, {score, member})
  wake(r, default_delay)
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

close_queues() -- what came back is due like what was there
bump(M, total)
for _, queue in ipairs(call('ZRANGEBYSCORE', P .. 'idle', '-inf', now - IDLE_MS, 'LIMIT', 0, 16)) do shelve(queue) end

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
    put_batch(queue, again[first].domain, tostring(record_of(queue).delay or -1), last - first + 1)
    for i = first, last do
      local one = again[i]
      put_batch(one.token, one.score, one.member, listed_origin(queue, one.member))
    end
    first = last + 1
  end
end

-- When a request on this queue may start (ms), guests considered.
local function start_of(r)
  local delay = r.delay or default_delay
  local due = due_of(r.next, delay, hold)
  if r.out > 0 or r.delay == 0 then return due end
  if r.guest then return math.max(due, guest_until(r, now, delay)) end
  if r.wish and r.wish ~= SERVED and due <= now then return wish_until(r, now) end
  return due
end

-- How many of its URLs a due queue gives. One whose delay is unknown gives one: its robots.txt may ask for more patience
-- than our default.
local function allowance(r, left)
  local n = 1
  if r.delay then n = r.delay > 0 and math.max(1, math.floor(ahead / r.delay)) or per_queue end
  return math.min(n, per_queue, left, math.max(0, out_max - r.out))
end

-- Take the best URLs of due queues: a list of {record, {member, score, ...}}.
local function take_due()
  local taken, later, asleep, left = {}, {}, {}, urls_max
  for _, queue in ipairs(call('ZRANGEBYSCORE', P .. 'ready', '-inf', now, 'LIMIT', 0, urls_max)) do
    if left <= 0 then break end
    local r = record_of(queue)
    local start = start_of(r)
    if r.out > 0 and r.delay ~= 0 then
      asleep[#asleep + 1] = queue -- the last of its claims to end brings it back
    elseif start > now then
      later[#later + 1], later[#later + 2] = start, queue
    else
      local n = allowance(r, left)
      local best = n > 0 and take(r, n) or {}
      if #best > 0 then
        taken[#taken + 1] = {r, best}
        set(r, 'out', r.out + #best / 2)
        if r.wish then
          set(r, 'wish', nil)
          set(r, 'guest_seen', nil)
        end
        left = left - #best / 2
      end
      if r.delay ~= 0 or r.out >= out_max or r.n == 0 then asleep[#asleep + 1] = queue end
    end
  end
  run_many(asleep, 'ZREM', P .. 'ready')
  run_many(later, 'ZADD', P .. 'ready')
  return taken
end

local function hand_out(taken)
  local entries, deadlines, serial = {}, {}, 0
  for _, of in ipairs(taken) do
    local r, best = of[1], of[2]
    local domain = r.domain or r.queue
    put_batch(r.queue, domain, tostring(r.delay or -1), #best / 2)
    for i = 1, #best, 2 do
      serial = serial + 1
      local token, score = epoch .. '.' .. request .. '.' .. serial, text_of(tonumber(best[i + 1]))
      entries[2 * serial - 1], entries[2 * serial] = token, pack_record(score, r.queue, domain, best[i])
      deadlines[2 * serial - 1], deadlines[2 * serial] = now + visibility, token
      put_batch(token, score, best[i], listed_origin(r.queue, best[i]))
    end
  end
  call('HSET', P .. 'u', unpack(entries))
  call('ZADD', P .. 'x', unpack(deadlines))
  call('HSET', M, 'request', request)
end

if meta[4] == request then
  repeat_batch()
else
  local taken = take_due()
  if #taken > 0 then hand_out(taken) end
end

write_queues()

local soonest = -1
for _, key in ipairs({'ready', 'r', 'x'}) do
  local first = call('ZRANGE', P .. key, 0, 0, 'WITHSCORES')
  local due = tonumber(first[2] or nil)
  if due and (soonest < 0 or due < soonest) then soonest = due end
end
local idle = tonumber(call('ZRANGE', P .. 'idle', 0, 0, 'WITHSCORES')[2] or nil)
if idle and (soonest < 0 or idle + IDLE_MS < soonest) then soonest = idle + IDLE_MS end
if call('EXISTS', P .. 'o') == 1 then soonest = 0 end
return {'OK', string.format('%.0f', soonest), batch, call('HGETALL', P .. 'k')}
