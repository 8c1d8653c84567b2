#!/bin/sh
echo "cases on ${MODE}"
