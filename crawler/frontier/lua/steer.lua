#!lua flags=allow-oom
-- steer: an operator's hand, or a budget that was raised: queues are stopped and started, parked URLs released. Needs no
-- fence. Idempotent but for 'release', which may be repeated until nothing is left.
-- KEYS  meta
-- ARGV  default delay (ms), hint channel prefix, session of the caller, msgpack list of {queue, what, reason, n, due}: 'stop' it for
--       a reason; 'start' it if it is stopped for that reason; 'release' its n best URLs (at most 256 a call) that are
--       parked for a reason; 'delay': n ms between its requests from now on (-1: not known, robots.txt tells);
--       due: when its next one may start, at the latest, on the partition's clock (-1: its owner is not the one who asks)
-- returns {woken queues, then for each how many URLs it was about}
--@include _fence _record _shelf _queue _block _park _hint
local default_delay, answers, sooner = tonumber(ARGV[1]), {0}, 0

local function release(r, reason, n)
  local row, entries = row_of(r.queue, reason), {}
  if row[N] == 0 then return 0 end
  local taken = take(row, n)
  for i = 1, #taken, 2 do entries[i], entries[i + 1] = text_of(tonumber(taken[i + 1])), taken[i] end
  note_released(r.queue, reason, #entries / 2)
  if string.sub(reason, 1, 5) == 'trap:' then set_more(r, 'free:' .. reason, 1) end -- or its owner would park them again
  put_pending(r, entries, default_delay)
  return #entries / 2
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

for i, order in ipairs(cmsgpack.unpack(ARGV[4])) do
  local r, what, reason = record_of(order[1]), order[2], order[3]
  local n = r[N]
  if what == 'stop' then
    if r.more.stop ~= reason then stop_queue(r, reason) end
  elseif what == 'start' then
    if r.more.stop == reason then start_queue(r, default_delay) else n = 0 end
  elseif what == 'delay' then
    set_delay(r, order[4], order[5])
  else
    n = release(r, reason, order[4])
  end
  if r[N] == 0 then settle(r, 0, 0, -1) end -- an idle one goes back to its shelf
  answers[i + 1] = n
end
answers[1] = close_queues()
write_totals()
hint(answers[1] + sooner, ARGV[2], ARGV[3])
return answers
