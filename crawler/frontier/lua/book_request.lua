#!lua flags=allow-oom
-- book_request: book a request that was made without a claim (for robots.txt): move the queue's clock, store the robots.txt.
-- Needs the fence. y:<bucket>: hashes origin -> robots.txt in the form that sessions share; it begins with the wall time (s)
-- when it was read. Each new one checks a few older ones, which are deleted when they are too old.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), queue, next fetch (ms), delay (ms), origin ('' for none), robots blob
-- returns {'FENCED'} | {'COMMITTED'}
local ROBOTS_S = 86400 -- how long a robots.txt may be used (RFC 9309 2.4)
local function read_at(blob) return tonumber(string.match(blob, '^%d+')) or 0 end

if not fence(ARGV) then return {'FENCED'} end
settle(record_of(ARGV[BookArgs.queue]), tonumber(ARGV[BookArgs.next_fetch_ms]), tonumber(ARGV[BookArgs.delay_ms]))
close_call()
local origin, robots = ARGV[BookArgs.origin], ARGV[BookArgs.robots]
if origin ~= '' then
  compact_put('y', origin, robots)
  local others = compact_neighbours('y', origin, 3)
  for i = 1, #others, 2 do
    if read_at(others[i + 1]) < read_at(robots) - ROBOTS_S then compact_drop('y', others[i]) end
  end
end
return {'COMMITTED'}
