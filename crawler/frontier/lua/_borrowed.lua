-- Borrowed request slots: a session makes one request on a queue whose partition another session owns.
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
