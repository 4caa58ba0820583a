-- Borrowed request slots: a session makes one request on a queue whose partition another session owns, for a robots.txt
-- that redirects to another domain, or a sitemap from the command line.
--
-- borrow_slot puts a mark on the queue, and return_slot tells that the request has ended. To move the queue's clock
-- when the slot is granted came too near in two ways: the request goes out later, by the time of a look-up and a
-- connection; and the stored clock stands still while nothing is written, so that a booking by it may lie in the
-- owner's past. So only the owner books, by its own time; until then it does not use the queue. A mark that nobody ends
-- expires by itself. Other borrowers wait for a whole delay after they first saw the last one end, and never carry the
-- clock on.
--
-- An owner that always has work would claim the queue as soon as it is due, and a borrower that tries once a second would
-- never get it. So one that must wait is noted as waiter, and gets one turn between two of the owner's.
local BORROWED_MS = 20000 -- a borrower's request begins at most this long after the grant: DNS look-up and connecting

local function done_mark(borrower) return 'done:' .. borrower end
local function is_done(mark) return string.sub(mark, 1, 5) == 'done:' end

-- When the owner may start a request on a queue with a borrower's mark (ms), as far as it knows now. Only the owner knows the
-- partition's time; borrowers know a lower bound. So the owner moves the clock for their requests. Not when it first sees that
-- one has ended: a claim that was long on its way brings a time from before the request. The owner sends the next claim after
-- the reply to the first, so its time is later than the request.
local function borrowed_until(r, now, delay_ms)
  local seen, has_ended = r[MORE].borrower_seen, is_done(r[MORE].borrower)
  if seen and now - seen >= (has_ended and 1 or BORROWED_MS) then
    set_more(r, 'borrower', nil)
    set_more(r, 'borrower_seen', nil)
    set(r, NEXT, math.max(r[NEXT], now + delay_ms))
    return now + delay_ms
  end
  if not seen then set_more(r, 'borrower_seen', now) end
  return now + (has_ended and 1 or 1000)
end

local left_until
do
  local LEFT_MS = 2500 -- the owner leaves a due queue this long to a waiting borrower; borrowers try once a second

  -- When the owner may start a request on a due queue that a borrower waits for (ms). Without this, a borrower would never get
  -- a slot of a queue that has URLs.
  function left_until(r, now)
    local seen = r[MORE].borrower_seen
    if seen and now - seen >= LEFT_MS then
      set_more(r, 'waiter', nil)
      set_more(r, 'borrower_seen', nil)
      return now
    end
    if not seen then set_more(r, 'borrower_seen', now) end
    return (seen or now) + LEFT_MS
  end
end
