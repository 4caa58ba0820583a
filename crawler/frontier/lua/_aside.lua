-- URLs whose origin does not answer are set aside: pending, in a row of their own, until the origin is probed.
-- The row is QUEUE|!ORIGIN, with blocks like a queue's, in memory or in files. Its record has n and blocks, and in the map
-- since: when the silence began. A member of a user's URL begins with \1, the user and a space. aside:QUEUE has the
-- origins, by when one of their URLs goes back into the queue, as a probe; RECALLED: all of them do. The URLs of such rows
-- are in aside of the queue's record, not in its n.
local Aside = {
  RECALLED = 0,
  BACK_MAX = 256, -- URLs that one call puts back
}

function Aside.key_of(queue) return ctx.prefix .. 'aside:' .. queue end

function Aside.row_of(queue, origin)
  local row = record_of(queue .. '|!' .. origin)
  row.is_row = true
  return row
end

-- Queue and origin of such a row's name; nil for other names.
function Aside.split(name)
  local at = string.find(name, '|!', 1, true)
  if at then return string.sub(name, 1, at - 1), string.sub(name, at + 2) end
end

function Aside.stored(user, member) return user == '' and member or '\1' .. user .. ' ' .. member end

-- User and member.
function Aside.unstored(stored)
  if string.byte(stored) ~= 1 then return '', stored end
  return string.match(stored, '^\1(%S+) (.*)$')
end

-- n URLs came into the rows of a queue.
function Aside.enter(r, n)
  enter(State.ASIDE, r, nil, n)
  r.may_be_idle = true
end

-- n URLs left them.
function Aside.leave(r, n)
  leave(State.ASIDE, r, nil, n)
  r.may_be_idle = true
end

-- Set when an origin is due, nil: it has no URLs in its row any more.
function Aside.schedule(queue, origin, due)
  local key, all = Aside.key_of(queue), ctx.prefix .. 'aside'
  if due then call('ZADD', key, due, origin) else call('ZREM', key, origin) end
  local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  if first then call('ZADD', all, first, queue) else call('ZREM', all, queue) end
end

-- Set URLs of an origin aside: {score, member, ...}, as in the row. since: used unless it was silent before; -1: it is not known
-- to be silent.
function Aside.put(r, origin, entries, due, since)
  local row = Aside.row_of(r.queue, origin)
  put(row, entries)
  if since >= 0 and not row[MORE].since then set_more(row, 'since', since) end
  Aside.enter(r, #entries / 2)
  Aside.schedule(r.queue, origin, due)
end

-- A function that tells whether a member of a queue has this origin.
function Aside.matcher(queue, origin)
  local scheme, rest = string.match(origin, '^(https?)://(.*)$')
  local letter = call('HGET', ctx.prefix .. 'g:' .. queue, origin)
  if rest == queue then letter = scheme == 'https' and '!' or '"' end
  if rest == 'www.' .. queue then letter = scheme == 'https' and '#' or '$' end
  if letter then return function(member) return string.sub(member, 1, 1) == letter end end
  return function(member)
    local at = string.byte(member) == 32 and string.find(member, ' ', 2, true)
    return at and string.sub(member, at + 1, at + #origin + 1) == origin .. '/'
  end
end

-- Take those of an origin out of the best URLs of a row of the queue, so that they need not be claimed first, and add them to
-- the entries that are to be set aside.
function Aside.sweep(r, user, origin, entries)
  local row, found, is_of_origin = Users.place_in(r, user), {}, Aside.matcher(r.queue, origin)
  local head = head_of(row.queue)
  local best = call('ZRANGE', head, 0, -1, 'WITHSCORES')
  for i = 1, #best, 2 do
    if is_of_origin(best[i]) then
      found[#found + 1] = best[i]
      entries[#entries + 1], entries[#entries + 2] = best[i + 1], Aside.stored(user, best[i])
    end
  end
  if #found == 0 then return end
  run_many(found, 'ZREM', head)
  add_urls(row, -#found)
  for _, member in ipairs(found) do note_runs(r, {member}, 1, -1) end
  if not promote(row) then leave_ready(row) end
  look_ahead(row.queue, meta().clock)
end

-- Take one URL out of a row, of the best ones: the one with the fewest attempts, so that none uses all of its own up by probing.
function Aside.take_probe(row)
  if not promote(row) then return {} end
  local head = head_of(row.queue)
  local best, found, least = call('ZREVRANGE', head, 0, -1, 'WITHSCORES'), nil, math.huge
  for i = 1, #best, 2 do
    local attempts = math.floor(tonumber(best[i + 1]) / ATTEMPT) % ATTEMPT
    if attempts < least then found, least = i, attempts end
  end
  if not found then return {} end
  call('ZREM', head, best[found])
  add_urls(row, -1)
  promote(row)
  return {best[found], best[found + 1]}
end

-- Put n URLs of a row back into the queue. Returns how many; none when the next ones are in a file, and are brought back.
function Aside.put_back(r, row, n, default_delay)
  local taken, of_users = n == 1 and Aside.take_probe(row) or take(row, n), {}
  for i = 1, #taken, 2 do
    local user, member = Aside.unstored(taken[i])
    local entries = of_users[user] or {}
    entries[#entries + 1], entries[#entries + 2], of_users[user] = taken[i + 1], member, entries
  end
  for user, entries in pairs(of_users) do put_back(r, user, entries, default_delay) end
  Aside.leave(r, #taken / 2)
  look_ahead(row.queue, meta().clock)
  return #taken / 2
end

-- One or all URLs of an origin that is due go back. Returns how many, and since when the origin has been silent.
function Aside.put_due_back(r, origin, due, most, default_delay, probe_ms)
  local row, now = Aside.row_of(r.queue, origin), meta().clock
  local is_recalled = due == Aside.RECALLED or Stops.deferring(r, Stops.RUNS)
  local n = Aside.put_back(r, row, is_recalled and most or 1, default_delay)
  local again = now + probe_ms -- its owner sets another time once the probe has failed
  if n == 0 then again = now + 1000 elseif is_recalled then again = Aside.RECALLED end
  if row[N] == 0 then again = nil end
  Aside.schedule(r.queue, origin, again)
  return n, row[MORE].since
end

-- Put URLs of origins that are due back into their queues. Returns the probes: queue, origin and since, one after another.
function Aside.put_all_due_back(default_delay, probe_ms)
  local probes, left, looks = {}, Aside.BACK_MAX, 64
  local queues = call('ZRANGEBYSCORE', ctx.prefix .. 'aside', '-inf', meta().clock, 'LIMIT', 0, 16)
  read_queues(queues)
  for _, queue in ipairs(queues) do
    local r, latest = record_of(queue), meta().clock
    if Stops.deferring(r, Stops.RUNS) then latest = '+inf' end
    local due = call('ZRANGEBYSCORE', Aside.key_of(queue), '-inf', latest, 'WITHSCORES', 'LIMIT', 0, math.max(0, looks))
    for i = 1, #due, 2 do
      if left <= 0 then return probes end
      local n, since = Aside.put_due_back(r, due[i], tonumber(due[i + 1]), left, default_delay, probe_ms)
      left, looks = left - n, looks - 1
      if n > 0 then
        local at = #probes
        probes[at + 1], probes[at + 2], probes[at + 3] = queue, due[i], string.format('%d', since or -1)
      end
    end
  end
  return probes
end

-- Set when URLs of an origin go back, if it has any in its row: RECALLED, or the time of the next probe. is_good: it answers.
function Aside.recall(queue, origin, due, is_good)
  if not call('ZSCORE', Aside.key_of(queue), origin) then return false end
  if is_good then set_more(Aside.row_of(queue, origin), 'since', nil) end
  Aside.schedule(queue, origin, due)
  return true
end
