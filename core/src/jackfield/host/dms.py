"""Writing to a person first: the chat alone with them on one channel instance (messaging.md 1.6)."""

from __future__ import annotations

import asyncio
import logging

from jackfield.api import OpensDms
from jackfield.errors import ChannelError
from jackfield.host.channels import ChannelDirectory, ChannelInstance
from jackfield.host.hub import Hub
from jackfield.ids import UserId
from jackfield.models import Address, OpenDm, Person
from jackfield.store import dms, people

__all__ = ["DirectChats"]

log = logging.getLogger(__name__)

OPEN_SECONDS = 20.0


class DirectChats:
    def __init__(self, hub: Hub, channels: ChannelDirectory) -> None:
        self._hub = hub
        self._channels = channels

    async def ensure(self, user: UserId, channel_type: str, instance: str) -> Address | None:
        """The chat with that person there: the one that is known, one that the channel opens, or one from which they
        wrote; None when there is none, or the channel is not ready."""
        place = self._channels.instance(channel_type, instance)
        if place is None or place.channel is None or not place.ready.is_set():
            return None
        # Where a chat is named by what a person is called now, another may be called so tomorrow: only the channel
        # knows, and asking it costs nothing there.
        lasting = place.channel.capabilities().open_dm is not OpenDm.PRIOR_CONTACT
        known = await self._hub.store.read(dms.find, user, channel_type, instance)
        if known is not None and lasting:
            return known
        found = await self._opened(place, user)
        if found is None and lasting:
            handle = user.removeprefix(f"{channel_type}:")
            found = await self._hub.store.read(dms.seen, handle, channel_type, instance)
        if found is not None and place.info is not None and not place.info.local:
            await self._hub.store.write(dms.remember, user, found, self._hub.clock.now())
        return found

    async def forget(self, user: UserId, address: Address) -> None:
        """It turned out not to be there any more; the next time it is looked for anew."""
        await self._hub.store.write(dms.forget, user, address.channel_type, address.instance)

    async def _opened(self, place: ChannelInstance, user: UserId) -> Address | None:
        channel = place.channel
        if not isinstance(channel, OpensDms) or channel.capabilities().open_dm is OpenDm.NO:
            return None
        known = await self._hub.store.read(people.user, user)
        person = Person(user.removeprefix(f"{place.type}:"), known.display_name if known is not None else None)
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                address = await channel.open_dm(person)
        except (ChannelError, TimeoutError) as problem:
            log.info("%s can't be written to on %s: %s", user, place.name, problem)
            return None
        except Exception:
            self._hub.trouble(f"channel {place.name}")
            log.exception("channel %s failed to open a chat with %s", place.name, user)
            return None
        if (address.channel_type, address.instance) != (place.type, place.name):
            log.warning("channel %s opened a chat that is not its own: %s", place.name, address)
            return None
        return address.chat
