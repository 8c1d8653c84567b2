"""Trials and history; the only room that speaks SQL."""
