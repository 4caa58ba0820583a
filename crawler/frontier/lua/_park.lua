-- URLs that are kept and not handed out. Parked by a rule or a budget, they lie in blocks of their own, the row
-- QUEUE|reason; and a queue may be stopped as a whole: stop is the reason, in its record and in the hash stops. What is
-- parked is not pending: to park a URL counts as done, to release it as added, and meta's parked and released count both.
-- A queue that is stopped as 'paused' keeps its URLs pending. parks: hash 'QUEUE|reason' -> how many URLs.
local PAUSED = 'paused'

local function row_name(queue, reason) return queue .. '|' .. reason end

-- The record of a row: it has URLs and blocks, and goes with the last URL.
local function row_of(queue, reason)
  local row = record_of(row_name(queue, reason))
  row.is_row = true
  return row
end

local function note_parked(queue, reason, n)
  count(total, 'done', n)
  count(total, 'parked', n)
  call('HINCRBY', P .. 'parks', row_name(queue, reason), n)
end

-- Entries of a queue into its row: {score, member, ...}, scores as text.
local function park(queue, reason, entries)
  put(row_of(queue, reason), entries)
  note_parked(queue, reason, #entries / 2)
end

local function note_released(queue, reason, n)
  count(total, 'added', n)
  count(total, 'released', n)
  local name = row_name(queue, reason)
  if call('HINCRBY', P .. 'parks', name, -n) == 0 then call('HDEL', P .. 'parks', name) end
end

-- Why all URLs of a queue are parked; nil when they are pending.
local function parking_stop(r)
  local reason = r[MORE].stop
  return reason ~= PAUSED and reason or nil
end

-- n pending URLs have come (back) into their queue.
local function note_pending(r, n, default_delay_ms)
  local reason = parking_stop(r)
  if reason then note_parked(r.queue, reason, n) end
  if default_delay_ms then wake(r, default_delay_ms) end
end

local function put_pending(r, entries, default_delay_ms)
  put(r, entries)
  note_pending(r, #entries / 2, default_delay_ms)
end

local function stop_queue(r, reason)
  if parking_stop(r) and r[N] > 0 then note_released(r.queue, r[MORE].stop, r[N]) end
  set_more(r, 'stop', reason)
  call('HSET', P .. 'stops', r.queue, reason)
  if reason ~= PAUSED and r[N] > 0 then note_parked(r.queue, reason, r[N]) end
end

local function start_queue(r, default_delay_ms)
  if parking_stop(r) and r[N] > 0 then note_released(r.queue, r[MORE].stop, r[N]) end
  set_more(r, 'stop', nil)
  call('HDEL', P .. 'stops', r.queue)
  wake(r, default_delay_ms)
end
