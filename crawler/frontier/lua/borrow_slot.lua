#!lua flags=allow-oom
-- reserve: ask for one request on a queue's clock without owning its partition (a robots.txt that redirects to
-- another domain, a sitemap given by hand). Granted only when the queue is due and nobody holds claims on it
-- (on a queue without delay, claims are no obstacle). The mark that it leaves keeps the owner and other borrowers off. A
-- borrower who has to wait leaves its waiter: the owner lets one borrower have a turn between two of its own.
-- KEYS  meta
-- ARGV  queue, now (ms; a lower bound of the owner's time), epoch under which that holds, default delay (ms), borrower,
--       mark seen ('' for none), for how long the caller has seen it (ms)
-- returns {wait (ms, 0: granted), clock (ms), epoch, mark of another borrower or ''}
-- The clock is not carried on: that is the owner's to do, and a new owner goes on from what is stored.
local clock, epoch = meta().clock, meta().epoch
if epoch == ARGV[3] then clock = math.max(clock, tonumber(ARGV[2])) end
local r = record_of(ARGV[1])
local delay, mark = delay_of(r) or tonumber(ARGV[4]), r[MORE].borrower or ''
local due = due_of(r[NEXT], delay, meta().hold)
local function answer(wait, other) return {wait, clock, epoch, other or ''} end
if delay_of(r) == 0 then return answer(math.max(0, due - clock)) end
if mark == ARGV[5] then return answer(0) end -- granted before; the answer was lost
local wait, other = 0, nil
if r[OUT] ~= 0 then
  wait = math.max(delay, 100)
elseif mark ~= '' then
  -- The clock that borrowers know may lag: who has seen the mark for a whole delay knows that its request is that long ago.
  local patience = delay + (is_done(mark) and 0 or BORROWED_MS)
  local seen = mark == ARGV[6] and tonumber(ARGV[7]) or 0
  if seen < patience then wait, other = math.min(patience - seen, 1000), mark end
elseif due > clock then
  wait = due - clock
end
if wait > 0 then
  if not r[MORE].waiter then set_more(r, 'waiter', ARGV[5]) end
else
  set_more(r, 'borrower', ARGV[5])
  set(r, NEXT, math.max(due, clock + delay))
  set_more(r, 'waiter', GRANTED)
  set_more(r, 'borrower_seen', nil)
end
close_queues()
return answer(wait, other)
