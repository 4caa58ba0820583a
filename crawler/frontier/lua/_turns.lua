-- Turns of users by weight: start-time fair queueing. A user is '' for the crawl itself, or a name. A table of turns has the
-- start tags of users that are ahead of virtual time, relative to it; all others are at 0. Whoever has the lowest goes first.
local Turns = {}

-- Whose turn it is among some users; of equals the first.
function Turns.next_of(turns, users)
  local best, least = nil, nil
  for _, user in ipairs(users) do
    local tag = turns[user] or 0
    if not least or tag < least then best, least = user, tag end
  end
  return best
end

-- It is the turn of this user: virtual time moves to its tag.
function Turns.advance(turns, user)
  local now = turns[user]
  if not now then return end
  for other, tag in pairs(turns) do turns[other] = tag > now and tag - now or nil end
end

-- A user got n URLs.
function Turns.charge(turns, user, n) turns[user] = (turns[user] or 0) + n / (ctx.weights[user] or 1) end

-- Nothing of this user waits any more.
function Turns.leave(users, user)
  for i, one in ipairs(users) do
    if one == user then return table.remove(users, i) end
  end
end
