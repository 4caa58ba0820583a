-- What became of the URLs that descend from a seed: a shelf e, number of the seed -> msgpack {added, done, dead}. Gathered
-- while a script runs, written by it once, at its end. Parked URLs count as neither done nor dead.
local ADDED, DONE, DEAD = 1, 2, 3
local seeds
--@each seeds = {}

local function count_seed(number, what, n)
  if not number or number == 0 then return end
  local counts = seeds[number] or {0, 0, 0}
  counts[what], seeds[number] = counts[what] + n, counts
end

local function write_seeds()
  for number, more in pairs(seeds) do
    local name = string.format('%d', number)
    local packed = shelf_get('e', name)
    local counts = packed and cmsgpack.unpack(packed) or {0, 0, 0}
    for i = 1, 3 do counts[i] = counts[i] + more[i] end
    shelf_put('e', name, cmsgpack.pack(counts))
  end
end
