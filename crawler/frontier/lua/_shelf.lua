-- Shelves: very many small values by name, in hashes that stay small enough to be packed: <kind>:<bucket>, and <kind>:split
-- while one splits (see _buckets.lua). Meta's <kind>n and <kind>b count values and buckets.
-- Kinds: h, the records of idle queues; y, robots.txt by origin; n, hosts that a budget took in; e, counts of seeds.
local PER_SHELF = 64
local SHELF_MOVES = {y = 4} -- values that one value more moves: a robots.txt may have half a megabyte
local SHELF_MOVES_MAX = 256
local shelves
--@each shelves = {}

-- The buckets of a kind, and how many values there are in them.
local function shelf_of(kind)
  if not shelves[kind] then
    local v = call('HMGET', M, kind .. 'n', kind .. 'b', 'split' .. kind)
    local shelf = buckets_named(kind, kind .. 'b', v[2], v[3])
    shelf.size, shelf.prefix = tonumber(v[1] or nil) or 0, P .. kind .. ':'
    shelves[kind] = shelf
  end
  return shelves[kind]
end

local function shelf_index(shelf, name) return bucket_at(number_of(name), shelf.n, shelf.low) end

local function shelf_get(kind, name)
  local shelf = shelf_of(kind)
  if shelf.size == 0 then return nil end
  local index = shelf_index(shelf, name)
  local value = call('HGET', shelf.prefix .. index, name)
  if not value and is_moving(shelf, index) then value = call('HGET', shelf.prefix .. 'split', name) end
  return value or nil
end

local function shelf_drop(kind, name)
  local shelf = shelf_of(kind)
  local index = shelf_index(shelf, name)
  local dropped = call('HDEL', shelf.prefix .. index, name)
  if is_moving(shelf, index) then dropped = dropped + call('HDEL', shelf.prefix .. 'split', name) end
  if dropped > 0 then shelf.size = call('HINCRBY', M, kind .. 'n', -dropped) end
end

local function shelf_grow(kind, shelf)
  if not shelf.is_splitting and shelf.size <= PER_SHELF * shelf.n then return end
  local most = math.min(moves_left, SHELF_MOVES[kind] or SHELF_MOVES_MAX)
  if most <= 0 then return end
  if not shelf.is_splitting then begin_split(shelf, {shelf.prefix}) end
  local function index_of(name) return shelf_index(shelf, name) end
  if move_some(shelf, shelf.prefix, most, index_of, 'HRANDFIELD', 'WITHVALUES', 'HSET', 'HDEL') then end_split(shelf) end
end

local function shelf_put(kind, name, value)
  local shelf = shelf_of(kind)
  local index = shelf_index(shelf, name)
  local n = call('HSET', shelf.prefix .. index, name, value)
  if is_moving(shelf, index) then n = n - call('HDEL', shelf.prefix .. 'split', name) end
  if n ~= 0 then shelf.size = call('HINCRBY', M, kind .. 'n', n) end
  shelf_grow(kind, shelf)
end

-- A random value or some, with their names, of the bucket of a name.
local function shelf_neighbours(kind, name, n)
  local shelf = shelf_of(kind)
  return call('HRANDFIELD', shelf.prefix .. shelf_index(shelf, name), n, 'WITHVALUES')
end
