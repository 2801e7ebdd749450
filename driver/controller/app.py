"""Entry point of the controller process: it chooses the generation of DRA that the cluster has."""

from kerf_dra.driver import VERSION
from kerf_dra.driver.controller.settings import NAME, Settings
from kerf_dra.driver.families.registry import installed_families
from kerf_dra.driver.kube.discovery import discover, discover_classic
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access


async def run(settings: Settings) -> None:
    """Run the controller of the cluster's generation of DRA until cancelled.

    Raises FamilyUnavailableError or InvalidFamilyError for families that are installed wrongly, AccessError when the
    API server cannot be accessed, UnsupportedError when it has no usable DRA, and ApiError when discovery fails.
    """
    families = installed_families()
    access = await load_access(settings.kubeconfig, settings.context)
    async with Client(access, user_agent=f"{NAME}/{VERSION}") as client:
        classic = await discover_classic(client)
        if classic is not None:
            from kerf_dra.driver.controller.classic.app import ClassicController  # the other generation is not imported

            await ClassicController(client, classic, settings).run()
        else:
            from kerf_dra.driver.controller.structured.app import StructuredController

            await StructuredController(client, await discover(client), settings, families).run()
