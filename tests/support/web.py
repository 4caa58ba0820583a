"""The generated web under the name by which our own tests know it: crawler/testing/generated_web.py is the one copy."""

from crawler.testing.generated_web import AGENT, ATTEMPTS, REDIRECTS_MAX, Expected, GeneratedWeb, Resource, Scope

__all__ = ["AGENT", "ATTEMPTS", "REDIRECTS_MAX", "Expected", "GeneratedWeb", "Resource", "Scope"]
