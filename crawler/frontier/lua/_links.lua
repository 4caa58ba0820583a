-- A budget of URLs that grows as other domains link to a queue: LINK_PLACES bits in its record (links), seven to a character,
-- one for each linking domain by its hash. So two domains may count as one, and no more than LINK_PLACES ever count.
local LINK_PLACES = 224
local RELEASE_MAX = 256 -- URLs a call
local linked -- queue -> places that are to be noted
--@each linked = {}

-- A queue whose budget may have grown, and the place of the domain that links to it: 0 to LINK_PLACES - 1, or -1 for none.
local function note_link(queue, place)
  if place < 0 then return end
  linked[queue] = linked[queue] or {}
  table.insert(linked[queue], place)
end

-- Its budget was grown by more than one call could release, perhaps: so it is looked at when a URL of it is done.
local function look_again(queue) linked[queue] = linked[queue] or {} end

local function write_links()
  for queue, places in pairs(linked) do
    local r = record_of(queue)
    for _, place in ipairs(places) do
      local links = r[MORE].links or string.rep('\0', LINK_PLACES / 7)
      local at, bit = math.floor(place / 7) + 1, 2 ^ (place % 7)
      local byte = string.byte(links, at)
      if math.floor(byte / bit) % 2 == 0 then
        set_more(r, 'links', string.sub(links, 1, at - 1) .. string.char(byte + bit) .. string.sub(links, at + 1))
      end
    end
  end
end

-- How many URLs of a queue a budget of URLs takes in.
local function urls_max_of(r, budgets)
  local n, links = 0, budgets[3] > 0 and r[MORE].links or ''
  for i = 1, #links do
    local byte = string.byte(links, i)
    while byte > 0 do
      n, byte = n + byte % 2, math.floor(byte / 2)
    end
  end
  return budgets[1] + n * budgets[3]
end

-- What grown budgets take in now of the URLs that they parked.
local function follow_links(budgets, default_delay_ms)
  local left = RELEASE_MAX
  for queue in pairs(linked) do
    local r = record_of(queue)
    local n = math.min(left, room_beside(r, 'urls', urls_max_of(r, budgets)))
    if n > 0 then left = left - release_best(r, 'urls', n, default_delay_ms) end
    if r[N] == 0 then settle(r, 0, 0, -1) end -- an idle one goes back to its shelf
  end
end
