-- Borrowers: sessions that make one request on a queue whose partition others own.
local BORROWED_MS = 20000 -- so long after its turn was granted a borrower's request may begin: look-up and connecting

local function done_mark(borrower) return 'done:' .. borrower end
local function is_done(mark) return string.sub(mark, 1, 5) == 'done:' end

-- When the owner may start a request on a queue with a borrower's mark (ms), as far as it knows now. Only the owner has the
-- partition's time: borrowers know a lower bound. So it is the owner who books their requests, when it first sees them.
local function borrowed_until(r, now, delay_ms)
  local seen = r[MORE].borrower_seen
  if is_done(r[MORE].borrower) or (seen and now - seen >= BORROWED_MS) then
    set_more(r, 'borrower', nil)
    set_more(r, 'borrower_seen', nil)
    set(r, NEXT, math.max(r[NEXT], now + delay_ms))
    return now + delay_ms
  end
  if not seen then set_more(r, 'borrower_seen', now) end
  return now + 1000
end

local LEFT_MS = 2500 -- so long the owner leaves a queue that is due to the borrower who waits for it; borrowers ask each second

-- When the owner may start a request on a queue that is due and that a borrower waits for (ms): without this, a borrower would
-- never be quicker than an owner who has work for the queue.
local function left_until(r, now)
  local seen = r[MORE].borrower_seen
  if seen and now - seen >= LEFT_MS then
    set_more(r, 'waiter', nil)
    set_more(r, 'borrower_seen', nil)
    return now
  end
  if not seen then set_more(r, 'borrower_seen', now) end
  return (seen or now) + LEFT_MS
end
