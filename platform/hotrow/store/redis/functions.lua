#!lua name=NAME
-- Functions of Hotrow's stores (docs/formats.md, "In Redis"). NAME is put in when they are loaded.

-- keys: a marker, then pages of its shard, each once. args: bytes of a record, then for each page
-- its new records, each key once. Writes the records that are newer than what lies there, and
-- returns how many. A record is key (8 bytes) | version (8) | row.
local function put(keys, args)
  local size = tonumber(args[1])
  if redis.call('EXISTS', keys[1]) == 0 then
    return redis.error_reply('HOTROWLOST the marker ' .. keys[1] .. ' is missing')
  end
  local written = 0
  for number = 2, #keys do
    local name = keys[number]
    local records = args[number]
    local page = redis.call('GET', name) or ''
    local new = {}
    local changed = false
    for from = 1, #records, size do
      local key = string.sub(records, from, from + 7)
      -- The bytes of a key may also stand inside a row, or across two records.
      local at = string.find(page, key, 1, true)
      while at and (at - 1) % size ~= 0 do
        at = string.find(page, key, at + 1, true)
      end
      local record = string.sub(records, from, from + size - 1)
      if not at then
        new[#new + 1] = record
        written = written + 1
      else
        -- Lua's numbers are doubles, so a version is compared in halves; its highest bit says
        -- only that the row is gone.
        local old_low, old_high = struct.unpack('<I4I4', page, at + 8)
        local low, high = struct.unpack('<I4I4', record, 9)
        old_high, high = old_high % 2147483648, high % 2147483648
        if high > old_high or (high == old_high and low > old_low) then
          redis.call('SETRANGE', name, at - 1, record)
          changed = true
          written = written + 1
        end
      end
    end
    if #new > 0 then
      -- APPEND would leave as much room behind the page as it is long, for ever.
      if changed then
        page = redis.call('GET', name)
      end
      redis.call('SET', name, page .. table.concat(new))
    end
  end
  return written
end

-- keys: the control records. args: a name; the text that it should have, after '=', or '': it
-- should not be there; the new text, after '=', or '': it is removed. Returns 1: it was as
-- expected and is changed; 2: it is already as it is to be; 0: neither.
local function swap(keys, args)
  local now = redis.call('HGET', keys[1], args[1])
  now = now and '=' .. now or ''
  if now == args[2] then
    if args[3] == '' then
      redis.call('HDEL', keys[1], args[1])
    else
      redis.call('HSET', keys[1], args[1], string.sub(args[3], 2))
    end
    return 1
  end
  return now == args[3] and 2 or 0
end

redis.register_function('NAME_put', put)
-- Also in a full store, so that generations can be deleted there.
redis.register_function{function_name = 'NAME_swap', callback = swap, flags = {'allow-oom'}}
