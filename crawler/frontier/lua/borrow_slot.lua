#!lua flags=allow-oom
-- borrow_slot: grant one request on a queue's clock to a session that does not own its partition (for a robots.txt that
-- redirects to another domain, or a sitemap from the command line). Granted when the queue is due and no claim on it is out
-- (without a delay, claims don't matter). The borrower's mark keeps the owner and other borrowers off. A borrower that has
-- to wait is noted as waiter: the owner leaves one slot to a borrower between two of its own.
-- KEYS  meta
-- ARGV  BorrowArgs. now: a lower bound of the owner's time, in the epoch for which that holds; mark: the one seen ('' for none),
--       and for how long the caller has seen it (ms)
-- returns {wait (ms, 0: granted), clock (ms), epoch, mark of another borrower or ''}
-- It does not move the partition's clock: only the owner does, and a new owner continues from the stored one.
local clock, epoch = meta().clock, meta().epoch
if epoch == ARGV[BorrowArgs.epoch] then clock = math.max(clock, tonumber(ARGV[BorrowArgs.now_ms])) end
local r = record_of(ARGV[BorrowArgs.queue])
local delay, mark = delay_of(r) or tonumber(ARGV[BorrowArgs.default_delay_ms]), r[MORE].borrower or ''
local due = due_of(r[NEXT], delay, meta().hold)
local function answer(wait, other) return {wait, clock, epoch, other or ''} end
if delay_of(r) == 0 then return answer(math.max(0, due - clock)) end
if mark == ARGV[BorrowArgs.borrower] then return answer(0) end -- granted before; the reply was lost
local wait, other = 0, nil
if r[OUT] ~= 0 then
  wait = math.max(delay, 100)
elseif mark ~= '' then
  -- The clock that borrowers know may lag. A caller that has seen the mark for a whole delay knows that the request is older.
  local patience = delay + (is_done(mark) and 0 or BORROWED_MS)
  local seen = mark == ARGV[BorrowArgs.mark] and tonumber(ARGV[BorrowArgs.seen_ms]) or 0
  if seen < patience then wait, other = math.min(patience - seen, 1000), mark end
elseif due > clock then
  wait = due - clock
end
if wait > 0 then
  if not r[MORE].waiter then set_more(r, 'waiter', ARGV[BorrowArgs.borrower]) end
else
  set_more(r, 'borrower', ARGV[BorrowArgs.borrower])
  set(r, NEXT, math.max(due, clock + delay))
  set_more(r, 'waiter', GRANTED)
  set_more(r, 'borrower_seen', nil)
end
close_call()
return answer(wait, other)
