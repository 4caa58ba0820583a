#!lua flags=allow-oom
-- steer: an operator's hand, or a budget that was raised: queues are stopped, started, slowed and boosted, deferred URLs
-- released. Needs no fence. Idempotent but for 'release', which may be repeated until nothing is left.
-- KEYS  meta
-- ARGV  default delay (ms), hint channel prefix, session of the caller, msgpack list of {queue, what, reason, n, due}: 'stop' it for
--       a reason; 'start' it if it is stopped for that reason; 'release' its n best URLs (at most 256 a call) that are
--       deferred for a reason (none when the next ones are a block in a file, and more than n); due: how many URLs of the queue may be taken in then (-1: any number), and -1 is the
--       answer when there are as many;
--       'delay': n ms between its requests from now on (-1: not known, robots.txt tells);
--       due: when its next one may start, at the latest, on the partition's clock (-1: its owner is not the one who asks);
--       'boost': among due queues it is of class n from now on, from -9 to 9 (0: of that of all others)
-- returns {woken queues, then for each how many URLs it was about}
local default_delay, answers, sooner, is_boosted = tonumber(ARGV[1]), {0}, 0, false

-- -1: no further one is taken in, by now: others have released since the caller looked.
local function release(r, reason, n, taken_in_max)
  if taken_in_max >= 0 then
    n = math.min(n, room_beside(r, reason, taken_in_max))
    if n <= 0 then return -1 end
  end
  local released = release_best(r, reason, n, default_delay)
  if released > 0 and string.sub(reason, 1, 5) == 'trap:' then
    set_more(r, 'free:' .. reason, 1) -- or its owner would defer them again
  end
  return released
end

-- What the queue waits for beside its delay, it still waits for.
local function set_delay(r, delay, due)
  local before, after = delay_of(r) or default_delay, delay >= 0 and delay or default_delay
  if due < 0 then due = math.max(0, r[NEXT] - math.max(0, before - after)) end
  settle(r, 0, 0, -1)
  if due < r[NEXT] then
    set(r, NEXT, due)
    sooner = sooner + 1
  end
  set(r, DELAY, delay)
end

-- Its owner is told, for what it does next may change.
local function set_boost(r, n)
  if (r[MORE].boost or 0) == n then return end
  change_boost(r, n)
  sooner, is_boosted = sooner + 1, true
end

local function write_boosts()
  local found = {}
  for n = 9, -9, -1 do
    if call('ZCOUNT', P .. 'boosts', n, n) > 0 then found[#found + 1] = n end
  end
  if #found > 0 then call('HSET', M, 'boosts', table.concat(found, ' ')) else call('HDEL', M, 'boosts') end
end

for i, order in ipairs(cmsgpack.unpack(ARGV[4])) do
  local r, what, reason = record_of(order[1]), order[2], order[3]
  local n = r[N]
  if what == 'stop' then
    if r[MORE].stop ~= reason then stop_queue(r, reason) end
  elseif what == 'start' then
    if r[MORE].stop == reason then start_queue(r, default_delay) else n = 0 end
  elseif what == 'delay' then
    set_delay(r, order[4], order[5])
  elseif what == 'boost' then
    set_boost(r, order[4])
  else
    n = release(r, reason, order[4], order[5])
  end
  if r[N] == 0 then settle(r, 0, 0, -1) end -- an idle one goes back to its store
  answers[i + 1] = n
end
answers[1] = close_queues()
write_totals()
if is_boosted then write_boosts() end
hint(answers[1] + sooner, ARGV[2], ARGV[3])
return answers
