#!lua flags=allow-oom
-- change_queues: stop, start, slow or boost queues and release deferred URLs, for an operator or after a budget was raised.
-- Without a fence. Idempotent, except for 'release', which may be repeated until nothing is left.
-- KEYS  meta
-- ARGV  OrderArgs. What of each order:
--       'stop': stop the queue for the reason; 'start': start it if it is stopped for the reason;
--       'release': release its n best URLs (at most 256 a call) that are deferred for the reason (none when the next ones are
--       a block in a file with more than n URLs); due: how many URLs of the queue may be admitted in all (-1: any number);
--       the result is -1 when that number is reached;
--       'delay': n ms between its requests from now on (-1: unknown, from robots.txt); due: latest start of its next request
--       on the partition's clock (-1: the caller is not the owner);
--       'boost': its boost among due queues from now on, n from -9 to 9 (0 is that of all others)
-- returns {woken queues, then for each change how many URLs it affected}
local default_delay, answers, sooner, is_boosted = tonumber(ARGV[OrderArgs.default_delay_ms]), {0}, 0, false

-- Returns -1 when no further URL is admitted: others have released some since the caller read the numbers.
local function release(r, reason, n, taken_in_max)
  if taken_in_max >= 0 then
    n = math.min(n, room_beside(r, reason, taken_in_max))
    if n <= 0 then return -1 end
  end
  local released = release_best(r, reason, n, default_delay)
  local is_beyond = reason == Requisites.BEYOND and taken_in_max < 0 -- released by people, not by a raised budget
  if reason == 'rights' or is_beyond or (released > 0 and string.sub(reason, 1, 5) == 'trap:') then
    set_more(r, 'free:' .. reason, 1) -- else the owner would defer them again, or refuse those of a run
  end
  return released
end

-- A wait that has another cause than the delay stays.
local function set_delay(r, delay, due)
  local before, after = delay_of(r) or default_delay, delay >= 0 and delay or default_delay
  if due < 0 then due = math.max(0, r[NEXT] - math.max(0, before - after)) end
  settle(r, 0, -1)
  if due < r[NEXT] then
    set(r, NEXT, due)
    sooner = sooner + 1
  end
  set(r, DELAY, delay)
end

-- Counts as sooner, so that the owner gets a hint: its next queue may be another one.
local function set_boost(r, n)
  if (r[MORE].boost or 0) == n then return end
  change_boost(r, n)
  sooner, is_boosted = sooner + 1, true
end

local function write_boosts()
  local found = {}
  for n = 9, -9, -1 do
    if call('ZCOUNT', ctx.prefix .. 'boosts', n, n) > 0 then found[#found + 1] = n end
  end
  if #found > 0 then call('HSET', ctx.meta_key, 'boosts', table.concat(found, ' ')) else call('HDEL', ctx.meta_key, 'boosts') end
end

for i, order in ipairs(cmsgpack.unpack(ARGV[OrderArgs.orders])) do
  local r, what, reason = record_of(order[QueueOrder.queue]), order[QueueOrder.what], order[QueueOrder.reason]
  local n = r[N]
  if what == 'stop' then
    if r[MORE].stop ~= reason then stop_queue(r, reason, default_delay) end
  elseif what == 'start' then
    if r[MORE].stop == reason then start_queue(r, default_delay) else n = 0 end
  elseif what == 'delay' then
    set_delay(r, order[QueueOrder.n], order[QueueOrder.due])
  elseif what == 'boost' then
    set_boost(r, order[QueueOrder.n])
  else
    n = release(r, reason, order[QueueOrder.n], order[QueueOrder.due])
  end
  settle_idle(r)
  answers[i + 1] = n
end
answers[1] = close_call()
if is_boosted then write_boosts() end
hint(answers[1] + sooner, ARGV[OrderArgs.hints], ARGV[OrderArgs.session])
return answers
