-- Guests: sessions that make one request on a queue whose partition others own.
local GUEST_MS = 20000 -- so long after its turn was granted a guest's request may begin: look-up and connecting

local function done_mark(guest) return 'done:' .. guest end
local function is_done(mark) return string.sub(mark, 1, 5) == 'done:' end

-- When the owner may start a request on a queue with a guest's mark (ms), as far as it knows now. Only the owner has the
-- partition's time: guests know a lower bound. So it is the owner who books their requests, when it first sees them.
local function guest_until(r, now, delay_ms)
  local seen = r[MORE].guest_seen
  if is_done(r[MORE].guest) or (seen and now - seen >= GUEST_MS) then
    set_more(r, 'guest', nil)
    set_more(r, 'guest_seen', nil)
    set(r, NEXT, math.max(r[NEXT], now + delay_ms))
    return now + delay_ms
  end
  if not seen then set_more(r, 'guest_seen', now) end
  return now + 1000
end

local WISH_MS = 2500 -- so long the owner leaves a queue that is due to the guest who waits for it; guests ask each second

-- When the owner may start a request on a queue that is due and that a guest wishes for (ms): without this, a guest would
-- never be quicker than an owner who has work for the queue.
local function wish_until(r, now)
  local seen = r[MORE].guest_seen
  if seen and now - seen >= WISH_MS then
    set_more(r, 'wish', nil)
    set_more(r, 'guest_seen', nil)
    return now
  end
  if not seen then set_more(r, 'guest_seen', now) end
  return (seen or now) + WISH_MS
end
